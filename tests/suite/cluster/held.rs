//! Links with a stand-in for the device compiler that pauses at a given point, so that a test can
//! act during the link.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use libtest_mimic::Failed;
use rustix::process::Pid;

use super::fixture::Lent;
use super::program::temps;
use crate::kit::Image;
use crate::support::{LLVM, Work, ensure, expect_equal, expect_in, made, shown, stderr_of, text};

/// The stand-in for the device compiler. It runs `before`, a script from the test, first.
const COMPILER: &str = concat!(
    crate::kit::reads_its_line!(),
    r#"node=$(uname -n)
echo "$cpu $node" >> notes
[ -e before ] && . ./before
printf 'image of %s' "$cpu" > "$out"
"#
);
/// Waits, on nodes only, until the test has acted.
pub(super) const HOLD: &str =
    "case $node in node1|node2|far) : > \"held-$cpu\"; while :; do sleep 0.1; done ;; esac\n";

/// A link of images for two architectures, with the stand-in.
pub(super) struct Link {
    pub(super) work: Work,
    /// The expected output.
    right: Vec<u8>,
}

impl Link {
    pub(super) fn new(lent: &Lent) -> Result<Link, Failed> {
        let work = lent.work();
        work.fat(
            "a.o",
            &[Image::amd("gfx90a", "A"), Image::amd("gfx1030", "B")],
        )?;
        work.tool("tools/clang", COMPILER);
        let mut link = Link {
            work,
            right: Vec::new(),
        };
        stderr_of(&mut link.command(lent, "", &[]))?;
        link.right = fs::read(link.work.path().join("out"))?;
        link.notes()?;
        fs::remove_file(link.work.path().join("out"))?;
        Ok(link)
    }

    pub(super) fn command(&self, lent: &Lent, launcher: &str, words: &[&str]) -> Command {
        let mut link = self.work.command(made().links.join("clang-linker-wrapper"));
        link.args([
            "--host-triple=x86_64-unknown-linux-gnu",
            "--wrapper-verbose",
            "-shared",
            "-o",
            "out",
            "a.o",
        ]);
        link.arg(format!("--linker-path={LLVM}/ld.lld")).args(words);
        link.env("OFFLD_CLANG", self.work.path().join("tools/clang"))
            .env("OFFLD_LAUNCHER", launcher);
        lent.with(&mut link);
        link
    }

    /// Starts the link, so that the test can act while it runs.
    pub(super) fn begun(
        &self,
        lent: &Lent,
        launcher: &str,
        words: &[&str],
    ) -> Result<Running, Failed> {
        Running::start(&mut self.command(lent, launcher, words))
    }

    /// The device links since the last call, each with its machine.
    pub(super) fn notes(&self) -> Result<Vec<String>, Failed> {
        let path = self.work.path().join("notes");
        let notes = fs::read_to_string(&path).unwrap_or_default();
        let _ = fs::remove_file(path);
        let mut notes: Vec<String> = notes.lines().map(str::to_owned).collect();
        notes.sort();
        Ok(notes)
    }

    pub(super) fn wait_for(&self, name: &str) -> Result<(), Failed> {
        let until = Instant::now() + Duration::from_secs(20);
        while !self.work.path().join(name).exists() {
            ensure(Instant::now() < until, || {
                format!("no {name} after 20 seconds")
            })?;
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Waits until both jobs wait on nodes.
    pub(super) fn wait_until_held(&self) -> Result<(), Failed> {
        ["gfx90a", "gfx1030"]
            .iter()
            .try_for_each(|arch| self.wait_for(&format!("held-{arch}")))
    }

    pub(super) fn expect_right(&self, said: &str) -> Result<(), Failed> {
        let made = fs::read(self.work.path().join("out"))
            .map_err(|error| format!("no output: {error}\n{said}"))?;
        ensure(made == self.right, || {
            format!("another output than without a launcher\n{said}")
        })?;
        self.expect_no_temps(said)
    }

    pub(super) fn expect_no_temps(&self, said: &str) -> Result<(), Failed> {
        let left = [
            temps(self.work.path())?,
            temps(&self.work.path().join("tmp"))?,
        ]
        .concat();
        ensure(left.is_empty(), || format!("left: {left:?}\n{said}"))
    }

    /// Checks that within `limit`, no process of a job remains on any machine.
    pub(super) fn expect_no_processes(&self, limit: Duration) -> Result<(), Failed> {
        expect_no_processes_in(self.work.path(), limit)
    }
}

/// A running link.
pub(super) struct Running {
    /// `None` after the test has waited for it.
    pub(super) child: Option<Child>,
    pub(super) command: Command,
    since: Instant,
}

impl Running {
    /// Starts `command`.
    pub(super) fn start(command: &mut Command) -> Result<Running, Failed> {
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let mut shown = Command::new(command.get_program());
        shown.args(command.get_args());
        Ok(Running {
            child: Some(child),
            command: shown,
            since: Instant::now(),
        })
    }

    pub(super) fn child(&mut self) -> &mut Child {
        self.child.as_mut().expect("it was not waited for")
    }

    pub(super) fn pid(&mut self) -> Pid {
        Pid::from_child(self.child())
    }

    /// Waits for success within `limit` after the start. Returns the messages.
    pub(super) fn ended_well(mut self, limit: Duration) -> Result<String, Failed> {
        let child = self.child.take().expect("it was not waited for");
        let ended = child.wait_with_output()?;
        let took = self.since.elapsed();
        ensure(ended.status.success(), || shown(&self.command, &ended))?;
        ensure(took <= limit, || {
            format!(
                "took {took:?}, and at most {limit:?} is right\n{}",
                shown(&self.command, &ended)
            )
        })?;
        Ok(text(&ended.stderr))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

pub(super) fn expect_one_warning(said: &str, parts: &[&str]) -> Result<(), Failed> {
    expect_equal(
        &format!("warnings in\n{said}"),
        "1",
        &said.matches("warning:").count().to_string(),
    )?;
    let warning = said
        .lines()
        .find(|line| line.contains("warning:"))
        .unwrap_or_default();
    parts.iter().try_for_each(|part| expect_in(warning, part))
}

/// Checks that within `limit`, no process of a job in `folder` remains on any machine.
pub(super) fn expect_no_processes_in(folder: &Path, limit: Duration) -> Result<(), Failed> {
    let until = Instant::now() + limit;
    loop {
        let left = Lent::processes_in(folder);
        if left.is_empty() {
            return Ok(());
        }
        ensure(Instant::now() < until, || {
            format!("left after {limit:?}:\n{}", left.join("\n"))
        })?;
        std::thread::sleep(Duration::from_millis(50));
    }
}
