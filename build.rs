//! Gives the library a digest of its own sources, by which `offld` and `offld-llvm` tell whether they are of one build. It is of the
//! sources and the locked versions of the crates, and of nothing else: no path, date or revision, so that builds are reproducible.
//! Has the programs' relocations packed. Says in one sentence what is missing where the LLVM that the features ask for is not here.

use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::Xxh3;

/// The releases of LLVM that there are features for, and the number in the name of llvm-sys's variable for each.
const LLVMS: [(u32, &str); 4] = [(22, "221"), (21, "211"), (20, "201"), (19, "191")];

fn main() -> std::io::Result<()> {
    if let Some(problem) = problem_with_llvm() {
        println!("cargo::error={problem}");
        return Ok(());
    }
    let root = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let mut files = Vec::new();
    sources(&root.join("src"), &mut files)?;
    // A crate from a registry has its lock file; one that is built as a dependency may have none.
    files.extend([root.join("Cargo.lock")].into_iter().filter(|lock| lock.is_file()));
    files.sort();
    let mut hash = Xxh3::new();
    for file in &files {
        let name = file.strip_prefix(&root).unwrap_or(file).to_string_lossy().into_owned();
        let bytes = std::fs::read(file)?;
        for part in [name.as_bytes(), &bytes] {
            hash.update(&(part.len() as u64).to_le_bytes());
            hash.update(part);
        }
    }
    // 18,000 pointers to relocate take 430 KiB of the program as they are; packed (DT_RELR) they take 5 KiB.
    if loader_knows_packed_relocations() {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
    println!("cargo::rustc-env=OFFLD_SOURCES={:032x}", hash.digest128());
    println!("cargo::rerun-if-changed=src");
    println!("cargo::rerun-if-changed=Cargo.lock");
    Ok(())
}

/// Whether the programs are for this machine, and its loader is that of glibc 2.36 or later. A program for an older one must not have
/// its relocations packed, and what a cross-compiled one will be started by is not known here.
#[expect(clippy::disallowed_types, reason = "nothing of a link runs here")]
fn loader_knows_packed_relocations() -> bool {
    let variable = |name| std::env::var(name).unwrap_or_default();
    if variable("HOST") != variable("TARGET") || variable("CARGO_CFG_TARGET_ENV") != "gnu" {
        return false;
    }
    // Says `glibc 2.36`.
    let told = std::process::Command::new("getconf").arg("GNU_LIBC_VERSION").output();
    let told = told.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let mut numbers =
        told.trim().strip_prefix("glibc ").unwrap_or_default().split('.').map_while(|part| part.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(2), Some(36))
}

/// Why there can be no `offld-llvm` with these features on this machine. llvm-sys finds out the same and says less; this is said before it is
/// compiled. inkwell is compiled before any crate that depends on it, so a `compile_error!` there would come too late.
fn problem_with_llvm() -> Option<String> {
    std::env::var_os("CARGO_FEATURE_WITH_LLVM")?;
    let asked: Vec<_> =
        LLVMS.into_iter().filter(|(release, _)| std::env::var_os(format!("CARGO_FEATURE_LLVM{release}")).is_some()).collect();
    let [(release, variable)] = asked[..] else {
        let names: Vec<String> = asked.iter().map(|(release, _)| format!("`llvm{release}`")).collect();
        let names = if names.is_empty() { "none".to_owned() } else { names.join(" and ") };
        return Some(format!(
            "one feature chooses the LLVM of offld-llvm, and {names} of them is on: the default is `llvm22`, another one is chosen by \
             `--no-default-features --features llvm19,remote-cache`"
        ));
    };
    let variable = format!("LLVM_SYS_{variable}_PREFIX");
    println!("cargo::rerun-if-env-changed={variable}");
    let folder = std::env::var_os(&variable).map(|prefix| PathBuf::from(prefix).join("bin"));
    if has_llvm_config(release, folder.as_deref().unwrap_or(Path::new(""))) {
        return None;
    }
    let looked = folder.map_or_else(|| "PATH".to_owned(), |folder| folder.display().to_string());
    let other = if release == 22 { "llvm19" } else { "llvm22" };
    Some(format!(
        "LLVM {release} is not here (no llvm-config of it in {looked}): install llvm-{release}-dev, libpolly-{release}-dev, libzstd-dev, \
         zlib1g-dev and libxml2-dev, or name its folder in {variable}, or take another one by `--no-default-features --features \
         {other},remote-cache`, or leave it out by `--no-default-features --features remote-cache`, which builds offld without offld-llvm"
    ))
}

/// Whether `folder`, or `PATH` where that is empty, has an llvm-config that llvm-sys takes for `release`.
#[expect(clippy::disallowed_types, reason = "nothing of a link runs here")]
fn has_llvm_config(release: u32, folder: &Path) -> bool {
    let names = ["llvm-config-@", "llvm-config@", "llvm@-config", "llvm-config-@.1", "llvm-config@1", "llvm-config"];
    names.into_iter().any(|name| {
        let name = name.replace('@', &release.to_string());
        let told = std::process::Command::new(folder.join(name)).arg("--version").output();
        let told = told.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
        told.split('.').next().and_then(|major| major.trim().parse::<u32>().ok()).is_some_and(|major| major >= release)
    })
}

/// Every Rust file below `folder`.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            sources(&path, found)?;
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
    Ok(())
}
