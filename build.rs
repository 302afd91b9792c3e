//! Gives the library a digest of its own sources, by which `offld` and `offld-llvm` tell whether they are of one build. It is of the
//! sources and the locked versions of the crates, and of nothing else: no path, date or revision, so that builds are reproducible.

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
    println!("cargo::rustc-env=OFFLD_SOURCES={:032x}", hash.digest128());
    println!("cargo::rerun-if-changed=src");
    println!("cargo::rerun-if-changed=Cargo.lock");
    Ok(())
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
