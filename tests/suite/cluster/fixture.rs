//! The cluster that these tests run on: Slurm and an SSH server on this machine, as tests/cluster/cluster.sh starts them. It is started
//! by the first test that needs it, serves one test after the other, and ends with this process, however that ends.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use libtest_mimic::{Failed, Trial};
use tempfile::TempDir;

use crate::support::{Outcome, Work, ensure, have_llvm, missing, output, root, run, test, text};

/// How users start jobs by Slurm.
pub(super) const SRUN: &str = "srun -Q -n1 -c{threads} --mem={mem}M -J {job}";
/// What is here only where `make test-cluster` has put it.
const TOOLS: [&str; 7] = ["slurmctld", "slurmd", "munged", "sshd", "srun", "setpriv", "unshare"];

/// The cluster, or why there is none.
static CLUSTER: Mutex<Option<Result<Cluster, String>>> = Mutex::new(None);

/// A running cluster.
pub(super) struct Cluster {
    script: Child,
    /// Its end is the end of the cluster.
    commands: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    folder: TempDir,
}

/// The cluster for one test, which nobody else uses meanwhile.
pub(super) struct Lent(MutexGuard<'static, Option<Result<Cluster, String>>>);

/// A test that needs the cluster and LLVM 22.
pub(super) fn on_cluster(name: &str, run: impl FnOnce(&mut Lent) -> Outcome + Send + 'static) -> Trial {
    test(format!("cluster::{name}"), || {
        let absent = TOOLS.iter().find(|tool| program(tool).is_none());
        if let Some(tool) = absent {
            return missing(format!("{tool} (`make setup-cluster`: slurm-wlm, slurm-client, munge, openssh-server)"));
        }
        if !have_llvm() {
            return missing("LLVM 22");
        }
        if !rustix::process::getuid().is_root() {
            return missing("the rights of root, without which there are no machines in namespaces");
        }
        let mut lent = Lent::new()?;
        lent.expect_idle("before the test")?;
        let ended = run(&mut lent)?;
        lent.expect_idle("after the test")?;
        Ok(ended)
    })
}

/// Ends the cluster, if there is one, and waits for that.
pub(crate) fn stop() {
    let mut cluster = CLUSTER.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    *cluster = None;
}

fn program(name: &str) -> Option<PathBuf> {
    let folders = ["/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin", "/bin", "/sbin"];
    folders.iter().map(|folder| Path::new(folder).join(name)).find(|path| path.is_file())
}

impl Cluster {
    fn start() -> Result<Cluster, String> {
        let told = |error: std::io::Error| format!("tests/cluster/cluster.sh: {error}");
        let folder = tempfile::Builder::new().prefix("offld-cluster-").tempdir().map_err(told)?;
        let mut command = Command::new(root().join("tests/cluster/cluster.sh"));
        command.arg(folder.path()).stdin(Stdio::piped()).stdout(Stdio::piped());
        // Ctrl-C is for us; the cluster follows.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut script = command.spawn().map_err(told)?;
        let (commands, answers) = (script.stdin.take(), script.stdout.take().ok_or("no stdout")?);
        let mut cluster = Cluster { script, commands, answers: BufReader::new(answers), folder };
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
        // A test that failed with the cluster in its hands has not broken it; what follows looks whether it is idle.
        let mut cluster = CLUSTER.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        match cluster.get_or_insert_with(Cluster::start) {
            Ok(_) => Ok(Lent(cluster)),
            Err(why) => Err(format!("no cluster: {why}").into()),
        }
    }

    fn cluster(&mut self) -> &mut Cluster {
        self.0.as_mut().and_then(|cluster| cluster.as_mut().ok()).expect("it was there when it was lent")
    }

    fn folder(&self) -> &Path {
        self.0.as_ref().and_then(|cluster| cluster.as_ref().ok()).expect("it was there when it was lent").folder.path()
    }

    /// A folder that all machines see; the node `blind` does not.
    pub(super) fn shared(&self) -> PathBuf {
        self.folder().join("shared")
    }

    /// A file system of half a MiB that all see.
    pub(super) fn small(&self) -> PathBuf {
        self.folder().join("small")
    }

    /// A folder for one test that all machines see.
    pub(super) fn work(&self) -> Work {
        Work::within(&self.shared())
    }

    /// The launcher for the machine that SSH leads to.
    pub(super) fn ssh(&self) -> String {
        format!("ssh -F {} far", self.folder().join("ssh_config").display())
    }

    /// `command` with what Slurm's tools want.
    pub(super) fn with<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        command.env("SLURM_CONF", self.folder().join("slurm.conf"))
    }

    /// Runs one of Slurm's tools; its stdout.
    pub(super) fn tool(&self, words: &[&str]) -> Result<String, Failed> {
        run(self.with(Command::new(words[0]).args(&words[1..])))
    }

    /// The jobs that are in the queue or end, a line each.
    pub(super) fn queue(&self) -> Result<String, Failed> {
        // While the controller is busy with a node that was lost, it does not always answer.
        for _ in 0..3 {
            let asked = output(self.with(Command::new("squeue").args(["-h", "-o", "%i %T %j %N"])))?;
            if asked.status.success() {
                return Ok(text(&asked.stdout));
            }
        }
        self.tool(&["squeue", "-h", "-o", "%i %T %j %N"])
    }

    /// How many jobs there have been: each is given the number after the last.
    pub(super) fn submitted(&self) -> Result<u64, Failed> {
        let said = self.tool(&["srun", "-Q", "-n1", "--mem=1M", "sh", "-c", "echo $SLURM_JOB_ID"])?;
        Ok(said.trim().parse::<u64>()?)
    }

    /// Cuts a machine off, as if its power had failed, or starts it again.
    pub(super) fn tell(&mut self, verb: &str, node: &str) -> Result<(), Failed> {
        let cluster = self.cluster();
        let commands = cluster.commands.as_mut().ok_or("the cluster has ended")?;
        writeln!(commands, "{verb} {node}")?;
        let answer = cluster.answer()?;
        ensure(answer == "done", || format!("{verb} {node}: {answer}"))
    }

    /// Waits until no job is left, or says after `limit` what is.
    pub(super) fn expect_empty_queue(&self, limit: Duration) -> Result<(), Failed> {
        let until = Instant::now() + limit;
        loop {
            let queue = self.queue()?;
            if queue.is_empty() {
                return Ok(());
            }
            ensure(Instant::now() < until, || format!("left in the queue after {limit:?}:\n{queue}"))?;
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Waits until all nodes wait for jobs.
    pub(super) fn expect_idle(&self, when: &str) -> Result<(), Failed> {
        self.expect_empty_queue(Duration::from_secs(15))?;
        let until = Instant::now() + Duration::from_secs(15);
        loop {
            let states = output(self.with(Command::new("sinfo").args(["-h", "-N", "-p", "both,blind", "-o", "%n %T"])))?;
            let states = text(&states.stdout);
            if states.lines().filter(|line| line.ends_with(" idle")).count() == 3 {
                return Ok(());
            }
            ensure(Instant::now() < until, || format!("nodes are not idle {when}:\n{states}"))?;
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// The processes of the nodes and of the SSH server whose command line or folder is below `folder`.
    pub(super) fn processes_in(folder: &Path) -> Vec<String> {
        let mut found = Vec::new();
        let name = folder.to_string_lossy().into_owned();
        for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
            if pid == std::process::id() {
                continue;
            }
            let line = text(&std::fs::read(entry.path().join("cmdline")).unwrap_or_default()).replace('\0', " ");
            let within = std::fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd.starts_with(folder));
            if within || line.contains(&name) {
                found.push(format!("{pid}: {line}"));
            }
        }
        found
    }
}
