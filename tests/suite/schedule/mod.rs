//! Device links and memory: stand-ins for the compiler allocate a set amount of memory for a set
//! time, under a control group with a limit. Several offld processes run at once.

mod limits;
pub(crate) mod stand_in;
mod trouble;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use libtest_mimic::Trial;

use crate::effort;
use crate::support::{Outcome, Work, ensure, passed, run, stderr_of, with_llvm};
use stand_in::{Link, best, expect_within, link, prepared, ran};

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = vec![
        with_llvm("schedule::no_link_is_killed_under_a_limit", under_a_limit),
        with_llvm(
            "schedule::processes_stay_within_the_limit_together",
            several_processes,
        ),
        with_llvm(
            "schedule::with_a_jobserver_nothing_waits_for_ever",
            with_a_jobserver,
        ),
    ];
    trials.extend(trials_of! { limits trouble });
    trials
}

/// Architectures with the memory of their link in MiB and its duration in seconds.
const LINKS: [(&str, u64, &str); 6] = [
    ("gfx906", 240, "0.9"),
    ("gfx908", 160, "0.7"),
    ("gfx90a", 160, "0.6"),
    ("gfx942", 80, "0.5"),
    ("gfx1030", 80, "0.4"),
    ("gfx1100", 80, "0.3"),
];
/// The memory limit for all links together, in MiB.
const LIMIT: u64 = 420;

/// A memory limit for processes.
enum Limit {
    /// A control group of version 1 or 2.
    Group(PathBuf),
    /// A directory with files that report the free memory, if this machine allows no control group.
    Files(PathBuf),
}

impl Limit {
    fn new(mib: u64, work: &Work) -> Limit {
        // Additional memory for the shells of the stand-ins, offld and the compilers of the test.
        let bytes = (mib + 60) << 20;
        let name = format!("offld-test-{}", std::process::id());
        for (root, file) in [
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            ("/sys/fs/cgroup", "memory.max"),
        ] {
            let folder = Path::new(root).join(&name);
            if Path::new(root).join("cgroup.procs").exists() && std::fs::create_dir(&folder).is_ok()
            {
                if std::fs::write(folder.join(file), bytes.to_string()).is_ok() {
                    return Limit::Group(folder);
                }
                let _ = std::fs::remove_dir(folder);
            }
        }
        work.file(
            "machine/proc/meminfo",
            format!("MemAvailable: {} kB\n", bytes >> 10),
        );
        Limit::Files(work.path().join("machine"))
    }

    /// Wraps `command` so that it runs under the limit.
    fn apply(&self, command: &Command) -> Command {
        let mut limited = Command::new("sh");
        if let Some(folder) = command.get_current_dir() {
            limited.current_dir(folder);
        }
        limited.envs(
            command
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        );
        for (name, _) in command.get_envs().filter(|(_, value)| value.is_none()) {
            limited.env_remove(name);
        }
        let enter = match self {
            Limit::Group(folder) => {
                format!("echo $$ > {}/cgroup.procs; exec \"$@\"", folder.display())
            }
            Limit::Files(root) => {
                limited.env("OFFLD_MEMORY_ROOT", root);
                "exec \"$@\"".to_owned()
            }
        };
        limited
            .args(["-c", &enter, "sh"])
            .arg(command.get_program())
            .args(command.get_args());
        limited
    }

    /// The number of processes under the limit that the kernel has killed.
    fn killed(&self) -> u64 {
        let Limit::Group(folder) = self else { return 0 };
        let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap_or_default();
        let text = read("memory.oom_control") + &read("memory.events");
        text.lines()
            .filter_map(|line| line.strip_prefix("oom_kill ")?.trim().parse::<u64>().ok())
            .sum()
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        if let Limit::Group(folder) = self {
            let _ = std::fs::remove_dir(folder);
        }
    }
}

/// offld knows the memory use of each link from the previous build. It must respect the limit and
/// finish in nearly the shortest time.
fn under_a_limit() -> Outcome {
    let work = prepared(&LINKS)?;
    let cached = |command: &mut Command| {
        command.env("OFFLD_CACHE", work.path().join("cache"));
    };
    // One link at a time, so that memory is sufficient.
    let mut first = link(&work, &["--wrapper-jobs=1"]);
    cached(&mut first);
    run(&mut first)?;
    ran(&work)?;
    let limit = Limit::new(LIMIT, &work);
    let mut second = link(&work, &["--wrapper-jobs=4", "--wrapper-verbose"]);
    cached(&mut second);
    let stderr = stderr_of(&mut limit.apply(&second))?;
    let links = ran(&work)?;
    ensure(limit.killed() == 0, || {
        format!("{} processes were killed:\n{stderr}", limit.killed())
    })?;
    ensure(!stderr.contains("retrying"), || {
        format!("a link was killed:\n{stderr}")
    })?;
    ensure(stderr.contains("waits for memory"), || {
        format!("no link had to wait:\n{stderr}")
    })?;
    expect_within(&links, LIMIT)?;
    let begun = links
        .iter()
        .map(|link| link.begun)
        .fold(f64::INFINITY, f64::min);
    let wall = links.iter().map(|link| link.ended).fold(0.0, f64::max) - begun;
    let best = best(&links, 4, LIMIT);
    // Starting a link and noticing its end take some time.
    let starts = 0.1 * links.len() as f64;
    ensure(wall <= 1.15 * best + starts, || {
        format!("{wall:.2} s, and {best:.2} s is possible:\n{links:?}\n{stderr}")
    })?;
    passed()
}

/// Two or three processes together use no more memory than the limit for one.
fn several_processes() -> Outcome {
    for count in [2, 3] {
        let work = prepared(&LINKS[1..4])?;
        let mut first = link(&work, &["--wrapper-jobs=1", "-o", "p0"]);
        let cache = work.path().join("cache");
        run(first.env("OFFLD_CACHE", &cache))?;
        ran(&work)?;
        let option = format!("--wrapper-memory={LIMIT}M");
        let start = |_| {
            // The same output each time, so the memory use of its links is known.
            let mut command = link(&work, &["--wrapper-jobs=3", &option, "-o", "p0"]);
            command
                .env("OFFLD_CACHE", &cache)
                .stderr(Stdio::piped())
                .spawn()
        };
        let children: Vec<Child> = (0..count).map(start).collect::<Result<_, _>>()?;
        for child in children {
            let output = child.wait_with_output()?;
            ensure(output.status.success(), || {
                String::from_utf8_lossy(&output.stderr).into_owned()
            })?;
        }
        let links = ran(&work)?;
        ensure(links.len() == 3 * count, || format!("{links:?}"))?;
        expect_within(&links, LIMIT)?;
        let most = most_at_once(&links);
        ensure(most > 1, || format!("one after the other: {links:?}"))?;
    }
    passed()
}

/// The largest number of links that ran at the same time.
fn most_at_once(links: &[Link]) -> usize {
    let at = |time: f64| {
        links
            .iter()
            .filter(|link| link.begun <= time && time < link.ended)
            .count()
    };
    links.iter().map(|link| at(link.begun)).max().unwrap_or(0)
}

/// Builds under make, with more links than fit into memory, and fewer job tokens than links.
fn with_a_jobserver() -> Outcome {
    for round in 0..effort::rounds("schedule::with_a_jobserver_nothing_waits_for_ever", 200, 8) {
        let links: Vec<(&str, u64, &str)> = LINKS
            .iter()
            .map(|(arch, _, _)| (*arch, 2, "0.01"))
            .collect();
        let work = prepared(&links)?;
        // Without a known memory use, offld assumes 96 MiB per link, so two links run at once.
        let jobs = ["--wrapper-memory=200M", "-o", "$@"];
        let command = link(&work, &jobs);
        let args: Vec<String> = command
            .get_args()
            .map(|word| word.to_string_lossy().into_owned())
            .collect();
        let line = format!("{} {}", command.get_program().display(), args.join(" "));
        work.file(
            "Makefile",
            format!("all: p q r s\np q r s:\n\t+@{line}\n.PHONY: p q r s\n"),
        );
        let mut make = work.command("timeout");
        let set: BTreeMap<_, _> = command
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?)))
            .collect();
        make.args(["60", "make", &format!("-j{}", 1 + round % 4)])
            .envs(set);
        run(&mut make)?;
        let links = ran(&work)?;
        ensure(links.len() == 4 * LINKS.len(), || {
            format!("{} links", links.len())
        })?;
    }
    passed()
}
