//! The cluster for these tests: Slurm and an SSH server on this machine, started by
//! tests/cluster/cluster.sh. The first test that needs the cluster starts it. It serves one test
//! after the other, and stops when this process ends for any reason.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use libtest_mimic::{Failed, Trial};
use tempfile::TempDir;

use crate::support::{Outcome, Work, ensure, have_llvm, missing, output, root, run, test, text};

/// The usual launcher for Slurm.
pub(super) const SRUN: &str = "srun -Q -n1 -c{threads} --mem={mem}M -J {job}";
/// Programs that exist only after `make test-cluster` has installed them.
const TOOLS: [&str; 7] = [
    "slurmctld",
    "slurmd",
    "munged",
    "sshd",
    "srun",
    "setpriv",
    "unshare",
];

/// The cluster, or the reason why there is none.
static CLUSTER: Mutex<Option<Result<Cluster, String>>> = Mutex::new(None);

/// A running cluster.
pub(super) struct Cluster {
    script: Child,
    /// The cluster stops when this pipe closes.
    commands: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    folder: TempDir,
}

/// Exclusive use of the cluster for one test.
pub(super) struct Lent(MutexGuard<'static, Option<Result<Cluster, String>>>);

/// A test that needs the cluster and LLVM 22.
pub(super) fn on_cluster(
    name: &str,
    run: impl FnOnce(&mut Lent) -> Outcome + Send + 'static,
) -> Trial {
    test(format!("cluster::{name}"), || {
        let absent = TOOLS.iter().find(|tool| program(tool).is_none());
        if let Some(tool) = absent {
            return missing(format!(
                "{tool} (`make setup-cluster`: slurm-wlm, slurm-client, munge, openssh-server)"
            ));
        }
        if !have_llvm() {
            return missing("LLVM 22");
        }
        if !rustix::process::getuid().is_root() {
            return missing(
                "the rights of root, without which there are no machines in namespaces",
            );
        }
        let mut lent = Lent::new()?;
        lent.expect_idle("before the test")?;
        let ended = run(&mut lent)?;
        lent.expect_idle("after the test")?;
        Ok(ended)
    })
}

/// Stops the cluster, if there is one, and waits for its end.
pub(crate) fn stop() {
    let mut cluster = CLUSTER
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    *cluster = None;
}

fn program(name: &str) -> Option<PathBuf> {
    let folders = [
        "/usr/bin",
        "/usr/sbin",
        "/usr/local/bin",
        "/usr/local/sbin",
        "/bin",
        "/sbin",
    ];
    folders
        .iter()
        .map(|folder| Path::new(folder).join(name))
        .find(|path| path.is_file())
}

impl Cluster {
    fn start() -> Result<Cluster, String> {
        let told = |error: std::io::Error| format!("tests/cluster/cluster.sh: {error}");
        let folder = tempfile::Builder::new()
            .prefix("offld-cluster-")
            .tempdir()
            .map_err(told)?;
        let mut command = Command::new(root().join("tests/cluster/cluster.sh"));
        command
            .arg(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        // Ctrl-C must not reach the cluster directly. It stops with this process.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut script = command.spawn().map_err(told)?;
        let (commands, answers) = (
            script.stdin.take(),
            script.stdout.take().ok_or("no stdout")?,
        );
        let mut cluster = Cluster {
            script,
            commands,
            answers: BufReader::new(answers),
            folder,
        };
        let mut answer = cluster.answer().map_err(told)?;
        if answer != "ready" {
            while let Ok(more) = cluster.answer() {
                answer = format!("{answer}\n{more}");
            }
            return Err(answer);
        }
        Ok(cluster)
    }

    fn answer(&mut self) -> std::io::Result<String> {
        let mut line = String::new();
        match self.answers.read_line(&mut line)? {
            0 => Err(std::io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(line.trim_end().to_owned()),
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        drop(self.commands.take());
        let _ = self.script.wait();
    }
}

impl Lent {
    fn new() -> Result<Lent, Failed> {
        // A failed test does not break the cluster. The next test checks that the cluster is idle.
        let mut cluster = CLUSTER
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        match cluster.get_or_insert_with(Cluster::start) {
            Ok(_) => Ok(Lent(cluster)),
            Err(why) => Err(format!("no cluster: {why}").into()),
        }
    }

    fn cluster(&mut self) -> &mut Cluster {
        self.0
            .as_mut()
            .and_then(|cluster| cluster.as_mut().ok())
            .expect("it was there when it was lent")
    }

    fn folder(&self) -> &Path {
        self.0
            .as_ref()
            .and_then(|cluster| cluster.as_ref().ok())
            .expect("it was there when it was lent")
            .folder
            .path()
    }

    /// A directory that all machines share, except the node `blind`.
    pub(super) fn shared(&self) -> PathBuf {
        self.folder().join("shared")
    }

    /// A shared file system of half a MiB.
    pub(super) fn small(&self) -> PathBuf {
        self.folder().join("small")
    }

    /// A directory for one test that all machines share.
    pub(super) fn work(&self) -> Work {
        Work::within(&self.shared())
    }

    /// The launcher for the machine behind SSH.
    pub(super) fn ssh(&self) -> String {
        format!("ssh -F {} far", self.folder().join("ssh_config").display())
    }

    /// Sets the environment that Slurm's tools need.
    pub(super) fn with<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        command.env("SLURM_CONF", self.folder().join("slurm.conf"))
    }

    /// Runs a Slurm tool. Returns its standard output.
    pub(super) fn tool(&self, words: &[&str]) -> Result<String, Failed> {
        run(self.with(Command::new(words[0]).args(&words[1..])))
    }

    /// The pending, running and completing jobs, one per line.
    pub(super) fn queue(&self) -> Result<String, Failed> {
        // While the controller handles a lost node, it does not always answer.
        for _ in 0..3 {
            let asked =
                output(self.with(Command::new("squeue").args(["-h", "-o", "%i %T %j %N"])))?;
            if asked.status.success() {
                return Ok(text(&asked.stdout));
            }
        }
        self.tool(&["squeue", "-h", "-o", "%i %T %j %N"])
    }

    /// The number of jobs so far. Slurm numbers its jobs consecutively.
    pub(super) fn submitted(&self) -> Result<u64, Failed> {
        let messages = self.tool(&[
            "srun",
            "-Q",
            "-n1",
            "--mem=1M",
            "sh",
            "-c",
            "echo $SLURM_JOB_ID",
        ])?;
        Ok(messages.trim().parse::<u64>()?)
    }

    /// Disconnects a machine, as in a power failure, or starts it again.
    pub(super) fn tell(&mut self, verb: &str, node: &str) -> Result<(), Failed> {
        let cluster = self.cluster();
        let commands = cluster.commands.as_mut().ok_or("the cluster has ended")?;
        writeln!(commands, "{verb} {node}")?;
        let answer = cluster.answer()?;
        ensure(answer == "done", || format!("{verb} {node}: {answer}"))
    }

    /// Waits until the queue is empty. After `limit`, the error lists the remaining jobs.
    pub(super) fn expect_empty_queue(&self, limit: Duration) -> Result<(), Failed> {
        let until = Instant::now() + limit;
        loop {
            let queue = self.queue()?;
            if queue.is_empty() {
                return Ok(());
            }
            ensure(Instant::now() < until, || {
                format!("left in the queue after {limit:?}:\n{queue}")
            })?;
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Waits until all nodes are idle.
    pub(super) fn expect_idle(&self, when: &str) -> Result<(), Failed> {
        self.expect_empty_queue(Duration::from_secs(15))?;
        let until = Instant::now() + Duration::from_secs(15);
        loop {
            let states = output(self.with(Command::new("sinfo").args([
                "-h",
                "-N",
                "-p",
                "both,blind",
                "-o",
                "%n %T",
            ])))?;
            let states = text(&states.stdout);
            if states
                .lines()
                .filter(|line| line.ends_with(" idle"))
                .count()
                == 3
            {
                return Ok(());
            }
            ensure(Instant::now() < until, || {
                format!("nodes are not idle {when}:\n{states}")
            })?;
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// The processes of the nodes and of the SSH server whose command line or working directory is
    /// below `folder`.
    pub(super) fn processes_in(folder: &Path) -> Vec<String> {
        let mut found = Vec::new();
        let name = folder.to_string_lossy().into_owned();
        for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Some(pid) = entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse::<u32>().ok())
            else {
                continue;
            };
            if pid == std::process::id() {
                continue;
            }
            let line = text(&std::fs::read(entry.path().join("cmdline")).unwrap_or_default())
                .replace('\0', " ");
            let within = std::fs::read_link(entry.path().join("cwd"))
                .is_ok_and(|cwd| cwd.starts_with(folder));
            if within || line.contains(&name) {
                found.push(format!("{pid}: {line}"));
            }
        }
        found
    }
}
