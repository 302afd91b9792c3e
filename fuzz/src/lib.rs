//! Shared code of the fuzz targets: an allocator with a limit, input bytes as a file, and tools
//! that run in this process.

use std::alloc::System;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Once;

use cap::Cap;

/// Counts live heap bytes and refuses allocations beyond the limit. Rust then aborts, which the
/// fuzzer reports.
#[global_allocator]
static HEAP: Cap<System> = Cap::new(System, usize::MAX);

/// Heap bytes that a reader may use for any input: zstd's tables, a thread's stack, a page of
/// output.
const BASE: usize = 64 << 20;
/// Additional heap bytes per input byte.
const PER_BYTE: usize = 10;

/// Runs `read` with the heap limit for an input of `len` bytes, in addition to live allocations.
pub fn bounded<T>(len: usize, read: impl FnOnce() -> T) -> T {
    let limit = HEAP.allocated() + BASE + PER_BYTE * len;
    let set = |limit| HEAP.set_limit(limit).expect("more lives than the limit allows");
    set(limit);
    let result = read();
    set(usize::MAX);
    result
}

/// Writes `bytes` to the file `name` in [`folder`], and returns its path.
pub fn file(name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder().join(name);
    std::fs::write(&path, bytes).expect("a file in memory");
    path
}

/// The directory of this process, in memory if possible. The first call creates it.
pub fn folder() -> &'static Path {
    static FOLDER: std::sync::OnceLock<PathBuf> = std::sync::OnceLock::new();
    FOLDER.get_or_init(|| {
        let base = if Path::new("/dev/shm").is_dir() { PathBuf::from("/dev/shm") } else { std::env::temp_dir() };
        let folder = base.join(format!("offld-fuzz.{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder in memory");
        folder
    })
}

/// Splits `data` at the first byte 0xff, which belongs to neither part.
pub fn split(data: &[u8]) -> (&[u8], &[u8]) {
    let at = data.iter().position(|byte| *byte == 0xff).unwrap_or(data.len());
    (&data[..at], data.get(at + 1..).unwrap_or_default())
}

/// Runs a tool with a fuzzed command line. The first byte of `data` selects one of `tools`, each
/// with its first arguments. More arguments follow, separated by zeros, up to the byte 0xff; the
/// rest is the contents of the file `a`. The file `b` is always the same.
pub fn tool(tools: &[&[&str]], data: &[u8]) {
    let Some((selection, data)) = data.split_first() else { return };
    let (line, contents) = split(data);
    let arguments: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
    // The tool may write to files that its arguments name, so they must be in this directory.
    if contents.contains(&b'/') && contents.contains(&b'@')
        || line.contains(&b'/')
        || arguments.iter().any(|argument| argument.ends_with(b".."))
    {
        return;
    }
    prepare_process();
    file("a", contents);
    file("b", b"The other file.");
    let tool = tools[usize::from(*selection) % tools.len()];
    let argv = tool.iter().map(OsString::from).chain(arguments.into_iter().map(|argument| OsString::from_vec(argument.to_vec())));
    bounded(data.len(), || {
        offld::main(argv.collect());
    });
    clean();
}

/// Once per process: enters the process's directory, silences output, and ignores signals, because
/// every run would install handlers. SIGALRM is the fuzzer's clock, so run.sh limits the time.
fn prepare_process() {
    static DONE: Once = Once::new();
    DONE.call_once(|| {
        std::env::set_current_dir(folder()).expect("the folder");
        // SAFETY: no other thread exists yet, and the files and signals exist.
        unsafe {
            std::env::set_var("TMPDIR", folder());
            [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGALRM].iter().for_each(|signal| {
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

/// Removes the files of the run.
fn clean() {
    for entry in std::fs::read_dir(folder()).expect("the folder").flatten() {
        let path = entry.path();
        let _ = if path.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
    }
}
