//! Build script: computes a digest of the sources, reads the release date, checks for LLVM, and
//! packs the relocations of the programs.
//!
//! `offld` and `offld-llvm` compare the digest to detect whether they are from the same build. It
//! covers only the sources and the locked versions of the crates, no path, date or revision, so
//! that builds are reproducible. If the LLVM version that the features select is missing, the
//! script reports that in one sentence.

use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::Xxh3;

/// The LLVM releases with a feature, and the number in the name of the llvm-sys variable for each.
const LLVMS: [(u32, &str); 4] = [(22, "221"), (21, "211"), (20, "201"), (19, "191")];

fn main() -> std::io::Result<()> {
    if let Some(problem) = problem_with_llvm() {
        println!("cargo::error={problem}");
        return Ok(());
    }
    let root = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let mut files = Vec::new();
    sources(&root.join("src"), &mut files)?;
    // A package from a registry has the other crates as dependencies, with versions in Cargo.lock.
    let crates = root.join("crates");
    if crates.is_dir() {
        sources(&crates, &mut files)?;
        println!("cargo::rerun-if-changed=crates");
    }
    // A crate from a registry has its lock file; one built as a dependency may have none.
    files.extend(
        [root.join("Cargo.lock")]
            .into_iter()
            .filter(|lock| lock.is_file()),
    );
    files.sort();
    let mut hash = Xxh3::new();
    for file in &files {
        let name = file
            .strip_prefix(&root)
            .unwrap_or(file)
            .to_string_lossy()
            .into_owned();
        let bytes = std::fs::read(file)?;
        for part in [name.as_bytes(), &bytes] {
            hash.update(&(part.len() as u64).to_le_bytes());
            hash.update(part);
        }
    }
    // The programs have 18,000 relocations: 430 KiB unpacked, 5 KiB packed (DT_RELR).
    if loader_knows_packed_relocations() {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
    println!("cargo::rustc-env=OFFLD_SOURCES={:032x}", hash.digest128());
    println!(
        "cargo::rustc-env=OFFLD_RELEASE_DATE={}",
        release_date(&root.join("CHANGELOG.md"))
    );
    println!("cargo::rerun-if-changed=src");
    println!("cargo::rerun-if-changed=Cargo.lock");
    Ok(())
}

/// Returns the date in the heading of this version, `## [0.12.0] - 2026-11-27`, for manual pages.
/// The date is empty if there is no such heading.
fn release_date(changes: &Path) -> String {
    let Ok(text) = std::fs::read_to_string(changes) else {
        return String::new();
    };
    println!("cargo::rerun-if-changed=CHANGELOG.md");
    let heading = concat!("## [", env!("CARGO_PKG_VERSION"), "] - ");
    let date = text.lines().find_map(|line| line.strip_prefix(heading));
    date.unwrap_or_default().trim().to_owned()
}

/// Returns whether the programs run on the build machine with the loader of glibc 2.36 or later.
/// Older loaders reject packed relocations, and the loader of a cross-compiled program is unknown.
#[expect(clippy::disallowed_types, reason = "nothing of a link runs here")]
fn loader_knows_packed_relocations() -> bool {
    let variable = |name| std::env::var(name).unwrap_or_default();
    if variable("HOST") != variable("TARGET") || variable("CARGO_CFG_TARGET_ENV") != "gnu" {
        return false;
    }
    // Prints `glibc 2.36`.
    let output = std::process::Command::new("getconf")
        .arg("GNU_LIBC_VERSION")
        .output();
    let output = output
        .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
        .unwrap_or_default();
    let mut numbers = output
        .trim()
        .strip_prefix("glibc ")
        .unwrap_or_default()
        .split('.')
        .map_while(|part| part.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(2), Some(36))
}

/// Returns the reason why `offld-llvm` cannot be built with these features on this machine.
/// llvm-sys detects the same problems, but its messages are shorter; this check runs before
/// llvm-sys is compiled. A `compile_error!` would be too late, because cargo compiles inkwell
/// before any crate that depends on it.
fn problem_with_llvm() -> Option<String> {
    std::env::var_os("CARGO_FEATURE_WITH_LLVM")?;
    let asked: Vec<_> = LLVMS
        .into_iter()
        .filter(|(release, _)| std::env::var_os(format!("CARGO_FEATURE_LLVM{release}")).is_some())
        .collect();
    let [(release, variable)] = asked[..] else {
        let names: Vec<String> = asked
            .iter()
            .map(|(release, _)| format!("`llvm{release}`"))
            .collect();
        let names = if names.is_empty() {
            "none".to_owned()
        } else {
            names.join(" and ")
        };
        return Some(format!(
            "one feature chooses the LLVM of offld-llvm, and {names} of them is on: the default is `llvm22`, another one is chosen by \
             `--no-default-features --features llvm19,remote-cache`"
        ));
    };
    let variable = format!("LLVM_SYS_{variable}_PREFIX");
    println!("cargo::rerun-if-env-changed={variable}");
    let directory = std::env::var_os(&variable).map(|prefix| PathBuf::from(prefix).join("bin"));
    if has_llvm_config(release, directory.as_deref().unwrap_or(Path::new(""))) {
        return None;
    }
    let looked = directory.map_or_else(
        || "PATH".to_owned(),
        |directory| directory.display().to_string(),
    );
    let other = if release == 22 { "llvm19" } else { "llvm22" };
    Some(format!(
        "LLVM {release} is not here (no llvm-config of it in {looked}): install llvm-{release}-dev, libpolly-{release}-dev, libzstd-dev, \
         zlib1g-dev and libxml2-dev, or name its folder in {variable}, or take another one by `--no-default-features --features \
         {other},remote-cache`, or leave it out by `--no-default-features --features remote-cache`, which builds offld without offld-llvm"
    ))
}

/// Returns whether `directory`, or `PATH` if it is empty, has an llvm-config that llvm-sys accepts
/// for `release`.
#[expect(clippy::disallowed_types, reason = "nothing of a link runs here")]
fn has_llvm_config(release: u32, directory: &Path) -> bool {
    let names = [
        "llvm-config-@",
        "llvm-config@",
        "llvm@-config",
        "llvm-config-@.1",
        "llvm-config@1",
        "llvm-config",
    ];
    names.into_iter().any(|name| {
        let name = name.replace('@', &release.to_string());
        let output = std::process::Command::new(directory.join(name))
            .arg("--version")
            .output();
        let output = output
            .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
            .unwrap_or_default();
        output
            .split('.')
            .next()
            .and_then(|major| major.trim().parse::<u32>().ok())
            .is_some_and(|major| major >= release)
    })
}

/// Collects every Rust file below `directory`.
fn sources(directory: &Path, found: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            sources(&path, found)?;
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
    Ok(())
}
