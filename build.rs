//! Gives the library a digest of its own sources, by which `offld` and `offld-llvm` tell whether they are of one build. It is of the
//! sources and the locked versions of the crates, and of nothing else: no path, date or revision, so that builds are reproducible.
//! Has the programs' relocations packed.

use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::Xxh3;

fn main() -> std::io::Result<()> {
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
