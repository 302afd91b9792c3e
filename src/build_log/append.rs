//! Appends lines to the log. Many processes do that at once. Each line is one write to a file that
//! is open for appending, which is atomic on Linux's local file systems (not on NFS). A full disk
//! or a killed process can still leave half a line. The next writer then starts a new line, so that
//! only that half is lost.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use rustix::fs::OFlags;

use super::Record;
use offld_system::environment;
use offld_system::shell::Shell;
use offld_system::threads::lock;

pub(crate) struct Log {
    path: PathBuf,
    shell: Arc<Shell>,
    file: Mutex<State>,
}

/// The file, opened by the first write.
enum State {
    Unopened,
    Open(OpenLog),
    /// The file cannot be written, and a warning was printed.
    Failed,
}

struct OpenLog {
    end: File,
    /// The same file, for reading its last byte. `None` for a pipe, a terminal, or a file that is
    /// writable but not readable.
    reader: Option<File>,
}

impl Log {
    /// Returns the log in the file `path`. Problems with it are reported to `shell`, once.
    pub(crate) fn new(path: PathBuf, shell: Arc<Shell>) -> Log {
        Log {
            path,
            shell,
            file: Mutex::new(State::Unopened),
        }
    }

    /// Appends a line. If the log cannot be written, prints one warning, and the link continues.
    pub(crate) fn append(&self, record: &Record) {
        let mut state = lock(&self.file);
        if let Err(error) = append(&mut state, &self.path, record) {
            let (path, name) = (self.path.display(), environment::OFFLD_CACHE_LOG);
            self.shell
                .warn(&format!("cannot write the build log `{path}` ({name}): {error}; further device links are not logged"));
            *state = State::Failed;
        }
    }
}

fn append(state: &mut State, path: &Path, record: &Record) -> io::Result<()> {
    if matches!(state, State::Unopened) {
        *state = State::Open(open(path)?);
    }
    let State::Open(log) = state else {
        return Ok(());
    };
    let line = serde_json::to_vec(record)?;
    write_line(
        &mut log.end,
        &line,
        log.reader.as_ref().is_some_and(ends_in_half_a_line),
    )
}

/// Appends `line`. `after_half`: the file ends in half a line, so a line break comes first.
fn write_line(file: &mut impl Write, line: &[u8], after_half: bool) -> io::Result<()> {
    let with_end = |before: &[u8]| [before, line, b"\n"].concat();
    let before: &[u8] = if after_half { b"\n" } else { b"" };
    if write_once(file, &with_end(before))? {
        return Ok(());
    }
    // Another process may have appended lines meanwhile, so the missing rest must not be appended.
    // The half line gets a line break, and the whole line is written again.
    if write_once(file, &with_end(b"\n"))? {
        return Ok(());
    }
    Err(io::Error::new(
        ErrorKind::StorageFull,
        "only part of a line was written",
    ))
}

/// Whether `bytes` were written as a whole, by one write.
fn write_once(file: &mut impl Write, bytes: &[u8]) -> io::Result<bool> {
    loop {
        match file.write(bytes) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            result => return Ok(result? == bytes.len()),
        }
    }
}

/// Whether the file ends without a newline. If two processes notice this at once, each begins with
/// a newline, and readers skip the empty line.
fn ends_in_half_a_line(file: &File) -> bool {
    let mut last = [0];
    let length = file.metadata().map_or(0, |metadata| metadata.len());
    length > 0 && file.read_exact_at(&mut last, length - 1).is_ok() && last != *b"\n"
}

fn open(path: &Path) -> io::Result<OpenLog> {
    // Opening a pipe without a reader must not block the link.
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
    let end = OpenOptions::new()
        .append(true)
        .create(true)
        .custom_flags(flags)
        .open(path)?;
    let reader = if end.metadata()?.is_file() {
        File::open(path).ok()
    } else {
        None
    };
    Ok(OpenLog { end, reader })
}

#[cfg(test)]
mod tests {
    use super::super::{Outcome, example, read};
    use super::*;

    /// Collects the messages of a shell.
    #[derive(Clone, Default)]
    struct Messages(Arc<Mutex<Vec<u8>>>);

    impl Write for Messages {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn many_threads_append_whole_lines() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        std::thread::scope(|scope| {
            for process in 0..8 {
                let path = path.clone();
                scope.spawn(move || {
                    let log =
                        Log::new(path, Arc::new(Shell::from_write("x", Box::new(io::sink()))));
                    for _ in 0..50 {
                        log.append(&Record {
                            process,
                            why: "y".repeat(3000),
                            ..example(Outcome::Miss)
                        });
                    }
                });
            }
        });
        let records = read(&path).unwrap().records;
        assert_eq!(records.len(), 400);
        assert!((0..8).all(|process| {
            records
                .iter()
                .filter(|record| record.process == process)
                .count()
                == 50
        }));
    }

    /// A file whose first `times` writes take at most `room` bytes each. Later writes take
    /// everything.
    struct Disk {
        text: Vec<u8>,
        room: usize,
        times: u32,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let taken = if self.times > 0 {
                self.room.min(bytes.len())
            } else {
                bytes.len()
            };
            self.times = self.times.saturating_sub(1);
            self.text.extend_from_slice(&bytes[..taken]);
            Ok(taken)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_partly_written_line_is_ended_and_written_again() {
        let mut disk = Disk {
            text: Vec::new(),
            room: 3,
            times: 1,
        };
        write_line(&mut disk, b"first", false).unwrap();
        write_line(&mut disk, b"second", false).unwrap();
        assert_eq!(disk.text, b"fir\nfirst\nsecond\n");
        let mut full = Disk {
            text: Vec::new(),
            room: 3,
            times: 2,
        };
        assert_eq!(
            write_line(&mut full, b"first", false).unwrap_err().kind(),
            ErrorKind::StorageFull
        );
        write_line(&mut full, b"second", true).unwrap();
        assert_eq!(full.text, b"fir\nfi\nsecond\n");
    }

    #[test]
    fn after_half_a_line_a_new_line_begins() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let half = br#"{"version":1,"time_us":17"#;
        std::fs::write(&path, half).unwrap();
        for process in 0..2 {
            let log = Log::new(
                path.clone(),
                Arc::new(Shell::from_write("x", Box::new(io::sink()))),
            );
            log.append(&Record {
                process,
                ..example(Outcome::Miss)
            });
            log.append(&Record {
                process,
                ..example(Outcome::Hit)
            });
        }
        let text = std::fs::read(&path).unwrap();
        assert!(
            text.starts_with(&[half, &b"\n{"[..]].concat()),
            "{}",
            String::from_utf8_lossy(&text)
        );
        assert_eq!(text.split(|byte| *byte == b'\n').count(), 6);
        assert_eq!(read(&path).unwrap().records.len(), 4);
    }

    #[test]
    fn an_unwritable_log_causes_one_warning() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &pipe,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        for path in [
            dir.path().to_owned(),
            dir.path().join("none/log"),
            "/dev/full".into(),
            pipe,
        ] {
            let messages = Messages::default();
            let log = Log::new(
                path.clone(),
                Arc::new(Shell::from_write("offld", Box::new(messages.clone()))),
            );
            log.append(&example(Outcome::Hit));
            log.append(&example(Outcome::Hit));
            let text = String::from_utf8(messages.0.lock().unwrap().clone()).unwrap();
            assert_eq!(
                text.matches("warning: cannot write the build log").count(),
                1,
                "{text}"
            );
            assert!(
                text.contains(&*path.to_string_lossy()) && text.contains("OFFLD_CACHE_LOG"),
                "{text}"
            );
        }
    }
}
