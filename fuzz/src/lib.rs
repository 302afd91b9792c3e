//! What every fuzz target shares: the allocator that holds a target to its memory, bytes as a file of their own, and a tool run
//! in this process.

use std::alloc::System;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Once;

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

/// Runs the tool that the first byte of `data` picks among `tools`, which are its name and the words before the line: words between
/// zeros up to the byte 0xff, then the contents of the file `a` that the line may name. The file `b` is always the same.
pub fn tool(tools: &[&[&str]], data: &[u8]) {
    let Some((pick, data)) = data.split_first() else { return };
    let (line, contents) = split(data);
    let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
    // The line may name files of this folder, and no others: it may write to them.
    if contents.contains(&b'/') && contents.contains(&b'@')
        || line.contains(&b'/')
        || words.iter().any(|word| word.ends_with(b".."))
    {
        return;
    }
    settle();
    file("a", contents);
    file("b", b"The other file.");
    let tool = tools[usize::from(*pick) % tools.len()];
    let argv = tool.iter().map(OsString::from).chain(words.into_iter().map(|word| OsString::from_vec(word.to_vec())));
    bounded(data.len(), || {
        offld::programs::main(argv.collect());
    });
    clean();
}

/// Once: this process works in its folder, is silent, and is deaf to signals, for which every run would start to listen.
fn settle() {
    static DONE: Once = Once::new();
    DONE.call_once(|| {
        std::env::set_current_dir(folder()).expect("the folder");
        // SAFETY: this is the only thread so far, and the names are those of files and signals that are there.
        unsafe {
            std::env::set_var("TMPDIR", folder());
            [libc::SIGINT, libc::SIGTERM, libc::SIGHUP].iter().for_each(|signal| {
                libc::signal(*signal, libc::SIG_IGN);
            });
            if std::env::var_os("OFFLD_FUZZ_LOUD").is_none() {
                let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
                (0..3).for_each(|fd| {
                    libc::dup2(null, fd);
                });
            }
        }
    });
}

/// Removes what the run left.
fn clean() {
    for entry in std::fs::read_dir(folder()).expect("the folder").flatten() {
        let path = entry.path();
        let _ = if path.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
    }
}
