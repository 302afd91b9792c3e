//! What every fuzz target shares: the allocator that holds a target to its memory, and bytes as a file of their own.

use std::alloc::System;
use std::path::{Path, PathBuf};

use cap::Cap;

/// Counts what lives on the heap, and refuses more than the limit: Rust then aborts, which the fuzzer reports.
#[global_allocator]
static HEAP: Cap<System> = Cap::new(System, usize::MAX);

/// What a reader may take whatever it is given: zstd's tables, a thread's stack, a page of output.
const BASE: usize = 64 << 20;
/// What it may take for each byte that it is given.
const EACH: usize = 10;

/// Runs `read` with no more memory than an input of `len` bytes deserves, beyond what lives already.
pub fn bounded<T>(len: usize, read: impl FnOnce() -> T) -> T {
    let limit = HEAP.allocated() + BASE + EACH * len;
    let set = |limit| HEAP.set_limit(limit).expect("more lives than the limit allows");
    set(limit);
    let result = read();
    set(usize::MAX);
    result
}

/// A folder in memory that belongs to this process; `name` in it is a file of these bytes.
pub fn file(name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder().join(name);
    std::fs::write(&path, bytes).expect("a file in memory");
    path
}

/// The folder of this process, made anew at the first call.
pub fn folder() -> &'static Path {
    static FOLDER: std::sync::OnceLock<PathBuf> = std::sync::OnceLock::new();
    FOLDER.get_or_init(|| {
        let base = if Path::new("/dev/shm").is_dir() { PathBuf::from("/dev/shm") } else { std::env::temp_dir() };
        let folder = base.join(format!("offld-fuzz.{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder in memory");
        folder
    })
}

/// Cuts `data` at the first byte 0xff: what is before it, and what comes after.
pub fn split(data: &[u8]) -> (&[u8], &[u8]) {
    let at = data.iter().position(|byte| *byte == 0xff).unwrap_or(data.len());
    (&data[..at], data.get(at + 1..).unwrap_or_default())
}
