//! Directory of one job, which both machines must see. offld writes the script of the job, and a
//! lease. The job ends if the lease is not renewed. The job reports its start, signs of life, the
//! exit status of the command, and the files that the command depends on.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::Request;
use crate::environment;

use crate::posix_shell::quoted;
use crate::response;
use crate::run::Cmd;
use crate::scratch::Scratch;

/// The part of the script that is the same for every job.
const SCRIPT: &str = include_str!("job.sh");
/// Number of checks, five per second, after which the script ends the command if its lease has not
/// changed.
const PATIENCE: u32 = 300;
/// Time that the other machine has to end a command whose lease is gone. It notices the missing
/// lease, and after a second kills the processes that have not ended.
const TIME_TO_END: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(20);

/// Directory of a job. Dropping it removes the directory, except with `--save-temps`.
#[derive(Debug)]
pub(super) struct Job {
    folder: PathBuf,
    nonce: String,
    keep: bool,
    renewals: u64,
}

/// How the job ended, as the other machine reports it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Status {
    pub(super) node: String,
    /// Why the command was not run, or was ended early.
    pub(super) refused: Option<String>,
    /// The exit status, as in a shell: 128+n after signal n.
    pub(super) status: i32,
    /// Whether a signal from elsewhere ended the job.
    pub(super) told: bool,
    /// Peak resident memory of any process of the job, in bytes; 0 if unknown.
    pub(super) peak_memory: u64,
    pub(super) cpu: Duration,
}

/// Sizes and times of files on the other machine.
#[derive(Debug, Default)]
pub(crate) struct Files(HashMap<PathBuf, (u64, i64)>);

impl Job {
    /// Creates the directory and the script that runs `cmd` as this machine would.
    pub(super) fn make(cmd: &Cmd, request: &Request<'_>, scratch: &Scratch) -> Result<Job> {
        let folder =
            std::path::absolute(scratch.path(&format!("job-{}", request.job), "launched")?)?;
        let shown = folder.display().to_string();
        let cannot = || format!("cannot create the files of a job in `{shown}`");
        match private(&folder) {
            // With --save-temps, the directory of the previous link may still exist.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && scratch.keeps() => {
                std::fs::remove_dir_all(&folder)
                    .and_then(|()| private(&folder))
                    .with_context(cannot)?;
            }
            made => made.with_context(cannot)?,
        }
        let mut job = Job {
            folder,
            nonce: nonce().with_context(cannot)?,
            keep: scratch.keeps(),
            renewals: 0,
        };
        let text = job.script_text(cmd, request).with_context(cannot)?;
        std::fs::write(job.script(), text).with_context(cannot)?;
        // Create the file before the other machine looks for it: a network file system may remember
        // for a while that a file was missing.
        std::fs::write(job.path("alive"), [b'\n'; 1024]).with_context(cannot)?;
        job.renew().with_context(cannot)?;
        Ok(job)
    }

    pub(super) fn script(&self) -> PathBuf {
        self.path("run")
    }

    pub(super) fn lease(&self) -> PathBuf {
        self.path("lease")
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Renews the lease: offld is still running.
    pub(super) fn renew(&mut self) -> io::Result<()> {
        self.renewals += 1;
        // The lease is overwritten in place with the same length: that works on a full disk, and
        // readers never see an empty file.
        let mut lease = std::fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(self.lease())?;
        lease.write_all(format!("{:020}\n", self.renewals).as_bytes())
    }

    /// Makes the other machine end the job.
    pub(super) fn end(&self) {
        let _ = std::fs::remove_file(self.lease());
    }

    /// Like [`Job::end`], and waits until the job has ended, so that it cannot interfere with later
    /// work.
    pub(super) fn end_and_wait(&self) {
        self.end();
        let until = Instant::now() + TIME_TO_END;
        while self.read("began").is_some()
            && self.read("ended").is_none()
            && self.status().is_none()
            && Instant::now() < until
        {
            std::thread::sleep(PAUSE);
        }
    }

    /// The node that the job runs on, once it has started.
    pub(super) fn node(&self) -> Option<String> {
        let text = self.read("began")?;
        let line = text.strip_suffix('\n')?;
        let node = line.strip_prefix(self.nonce.as_str())?.trim();
        Some(if node.is_empty() {
            "another machine".to_owned()
        } else {
            node.to_owned()
        })
    }

    /// Returns a text that changes as long as the job is alive, and the job's peak memory so far,
    /// in bytes.
    pub(super) fn alive(&self) -> (String, u64) {
        let text = self.read("alive").unwrap_or_default();
        let peak = text
            .split_whitespace()
            .nth(1)
            .and_then(|kib| kib.parse::<u64>().ok())
            .unwrap_or(0);
        (text, peak << 10)
    }

    /// How the job has ended, once it has reported that.
    pub(super) fn status(&self) -> Option<Status> {
        let text = self.read("status")?;
        let mut lines = text.strip_suffix("end\n")?.lines();
        if lines.next()? != self.nonce {
            return None;
        }
        let mut status = Status::default();
        for line in lines {
            let (name, value) = line.split_once(' ').unwrap_or((line, ""));
            match name {
                "node" => value.clone_into(&mut status.node),
                "refused" => status.refused = Some(value.to_owned()),
                "status" => status.status = value.parse().ok()?,
                "told" => status.told = !value.is_empty(),
                "peak" => status.peak_memory = value.parse::<u64>().unwrap_or(0) << 10,
                // `times` prints the times of the shell's children last.
                _ => status.cpu = times(line).unwrap_or(status.cpu),
            }
        }
        Some(status)
    }

    /// Output of the command: stdout and stderr.
    pub(super) fn said(&self) -> (Vec<u8>, Vec<u8>) {
        let read = |name| std::fs::read(self.path(name)).unwrap_or_default();
        (read("stdout"), read("stderr"))
    }

    pub(super) fn files(&self) -> Files {
        Files::read(&std::fs::read(self.path("files")).unwrap_or_default())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Contents of a file that the other machine writes.
    fn read(&self, name: &str) -> Option<String> {
        const MOST: u64 = 64 << 10;
        refresh(&self.folder);
        let mut text = String::new();
        std::fs::File::open(self.path(name))
            .ok()?
            .take(MOST)
            .read_to_string(&mut text)
            .ok()?;
        Some(text)
    }

    fn script_text(&self, cmd: &Cmd, request: &Request<'_>) -> io::Result<Vec<u8>> {
        let mut text = b"# An offld job: runs a command on another machine.\n".to_vec();
        let mut set = |name: &str, value: &[u8]| {
            text.extend_from_slice(name.as_bytes());
            text.push(b'=');
            text.extend(quoted(value));
            text.push(b'\n');
        };
        set("job", self.folder.as_os_str().as_bytes());
        set("nonce", self.nonce.as_bytes());
        set("folder", std::env::current_dir()?.as_os_str().as_bytes());
        set("program", cmd.program.as_os_str().as_bytes());
        set(
            "listed",
            request
                .dependencies
                .map_or(OsStr::new(""), Path::as_os_str)
                .as_bytes(),
        );
        set("patience", PATIENCE.to_string().as_bytes());
        text.extend_from_slice(b"run_it() {\n  exec /usr/bin/env -i --");
        let mut word = |bytes: &[u8]| {
            text.extend_from_slice(b" \\\n    ");
            text.extend(quoted(bytes));
        };
        environment(&self.folder)
            .iter()
            .for_each(|variable| word(variable.as_bytes()));
        if cmd.program.as_os_str().as_bytes().contains(&b'=') {
            // env would read the program as a variable.
            ["/bin/sh", "-c", "exec \"$0\" \"$@\""]
                .iter()
                .for_each(|part| word(part.as_bytes()));
        }
        word(cmd.program.as_os_str().as_bytes());
        if response::needs_spill(&cmd.args) {
            let file = self.path("response");
            std::fs::write(&file, response::spill(&cmd.args, cmd.quoting))?;
            word(&[b"@", file.as_os_str().as_bytes()].concat());
        } else {
            cmd.args.iter().for_each(|arg| word(arg.as_bytes()));
        }
        text.extend_from_slice(b"\n}\nlook_at() {\n  stat -L -c '%s %Y %n' --");
        for path in request
            .compare
            .iter()
            .map(PathBuf::as_path)
            .chain(cmd.output.as_deref())
        {
            text.extend_from_slice(b" \\\n    ");
            text.extend(quoted(path.as_os_str().as_bytes()));
        }
        text.extend_from_slice(b" \"$@\"\n}\n");
        text.extend_from_slice(SCRIPT.as_bytes());
        Ok(text)
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.end();
        if !self.keep {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}

impl Files {
    fn read(text: &[u8]) -> Files {
        let line = |line: &[u8]| {
            let mut parts = line.splitn(3, |byte| *byte == b' ');
            let (size, time, path) = (parts.next()?, parts.next()?, parts.next()?);
            let (size, time) = (
                std::str::from_utf8(size).ok()?,
                std::str::from_utf8(time).ok()?,
            );
            Some((
                PathBuf::from(OsStr::from_bytes(path)),
                (size.parse().ok()?, time.parse().ok()?),
            ))
        };
        Files(text.split(|byte| *byte == b'\n').filter_map(line).collect())
    }

    /// The size of the file on the other machine.
    pub(super) fn size(&self, path: &Path) -> Option<u64> {
        self.0.get(path).map(|(size, _)| *size)
    }

    /// The first of `paths` that differs between the machines, by size and time, or exists on one
    /// machine only.
    pub(super) fn differing<'p>(
        &self,
        paths: impl IntoIterator<Item = &'p Path>,
    ) -> Option<&'p Path> {
        let here = |path: &Path| {
            std::fs::metadata(path)
                .ok()
                .map(|meta| (meta.size(), meta.mtime()))
        };
        paths
            .into_iter()
            .find(|path| here(path) != self.0.get(*path).copied())
    }
}

/// Makes a network file system ask its server for the contents of `folder`. Otherwise a file that
/// was missing may seem missing for a while.
pub(super) fn refresh(folder: &Path) {
    if let Ok(mut entries) = std::fs::read_dir(folder) {
        let _ = entries.next();
    }
}

/// Creates a directory that is closed to other users, because the script contains our environment.
fn private(folder: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().mode(0o700).create(folder)
}

/// Our environment as `NAME=VALUE`, with the variables that children of offld get.
fn environment(temporary: &Path) -> Vec<OsString> {
    let ours = [
        ("TMPDIR", temporary.as_os_str()),
        (environment::OFFLD_WITHIN, OsStr::new("1")),
    ];
    let is_ours = |name: &OsStr| ours.iter().any(|(own, _)| name == *own);
    // env cannot set a variable whose name begins with `=`.
    let inherited = std::env::vars_os()
        .filter(|(name, _)| !is_ours(name) && !name.is_empty() && name.as_bytes()[0] != b'=');
    let line = |name: &OsStr, value: &OsStr| {
        OsString::from_vec([name.as_bytes(), b"=", value.as_bytes()].concat())
    };
    let mut all: Vec<OsString> = inherited.map(|(name, value)| line(&name, &value)).collect();
    all.extend(
        ours.iter()
            .map(|(name, value)| line(OsStr::new(name), value)),
    );
    all
}

/// Random nonce that only readers of the script know.
fn nonce() -> Result<String, getrandom::Error> {
    let (high, low) = (getrandom::u64()?, getrandom::u64()?);
    Ok(format!("{high:016x}{low:016x}"))
}

/// Sum of the two times on a line of the shell's `times`: `0m1.500s 0m0.020s`.
fn times(line: &str) -> Option<Duration> {
    let one = |text: &str| {
        let (minutes, seconds) = text.strip_suffix('s')?.split_once('m')?;
        let seconds =
            minutes.parse::<f64>().ok()? * 60.0 + seconds.replace(',', ".").parse::<f64>().ok()?;
        Duration::try_from_secs_f64(seconds).ok()
    };
    let (user, system) = line.split_once(' ')?;
    Some(one(user)? + one(system)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_the_times_of_a_shell() {
        assert_eq!(
            times("0m1.500s 1m0.250s"),
            Some(Duration::from_millis(61_750))
        );
        assert_eq!(times("0m0,50s 0m0,00s"), Some(Duration::from_millis(500)));
        assert_eq!(times("end"), None);
    }

    #[test]
    fn files_differ_by_size_or_time_or_if_they_are_unknown() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a b\u{fc}");
        std::fs::write(&path, "1234").unwrap();
        let time = std::fs::metadata(&path).unwrap().mtime();
        let files = |size, time: i64| {
            Files::read(format!("{size} {time} {}\nrubbish\n", path.display()).as_bytes())
        };
        let differs = |files: &Files| files.differing([path.as_path()]).is_some();
        assert!(
            !differs(&files(4, time)) && differs(&files(5, time)) && differs(&files(4, time - 1))
        );
        assert!(differs(&Files::default()));
        std::fs::remove_file(&path).unwrap();
        assert!(
            differs(&files(4, time)) && !differs(&Files::default()),
            "it is only there, or nowhere"
        );
    }
}
