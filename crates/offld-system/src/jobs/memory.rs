//! Memory figures of the system: free memory within the limits of control groups, memory of a
//! process's children, and the kernel's count of out-of-memory kills. Also the directories of the
//! control groups that limit this process.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Reads memory figures below a root directory.
#[derive(Debug)]
pub(crate) struct Machine {
    /// Directory that all paths are relative to: `/`, except in tests.
    root: PathBuf,
    /// Control groups of this process. They are looked up when first needed: a link whose images
    /// are all cached never needs them.
    groups: OnceLock<Vec<Group>>,
}

impl Machine {
    /// Reads the files below `root`.
    pub(crate) fn below(root: &Path) -> Machine {
        Machine {
            root: root.to_owned(),
            groups: OnceLock::new(),
        }
    }

    fn groups(&self) -> &[Group] {
        self.groups
            .get_or_init(|| groups_of_this_process(&self.root, "memory"))
    }

    /// Returns the number of bytes that can be allocated before processes must be killed or swapped
    /// out. Returns `None` if the system does not report it.
    pub(crate) fn free(&self) -> Option<u64> {
        let around = self.groups().iter().flat_map(|group| {
            group
                .with_those_around()
                .map(|folder| left_in(folder, group.version))
        });
        around.flatten().chain(self.available()).min()
    }

    /// The kernel's estimate of memory that is available without swapping, in bytes.
    fn available(&self) -> Option<u64> {
        let info = std::fs::read_to_string(self.root.join("proc/meminfo")).ok()?;
        let line = info
            .lines()
            .find_map(|line| line.strip_prefix("MemAvailable:"))?;
        Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
    }

    /// Number of processes of the innermost control group that the kernel has killed so far because
    /// of missing memory.
    pub(crate) fn killed(&self) -> u64 {
        let count = |group: &Group| {
            let name = if group.version == 1 {
                "memory.oom_control"
            } else {
                "memory.events"
            };
            let text = std::fs::read_to_string(group.folder.join(name)).ok()?;
            field(&text, "oom_kill")
        };
        self.groups().iter().filter_map(count).sum()
    }

    /// Memory of all running descendants of the process `pid`, in bytes. File pages do not count,
    /// because several processes may share them. Returns `None` if the system does not report it.
    pub(crate) fn of_children(&self, pid: u32) -> Option<u64> {
        Some(
            self.below_process(pid)?
                .into_iter()
                .map(|child| self.used(child).unwrap_or(0))
                .sum(),
        )
    }

    /// Whether a descendant of the process `pid` is computing or reading a disk at this moment.
    fn works_below(&self, pid: u32) -> bool {
        let works = |child: u32| {
            self.threads(child).is_ok_and(|mut threads| {
                threads.any(|thread| state(&thread).is_some_and(|state| matches!(state, 'R' | 'D')))
            })
        };
        self.below_process(pid)
            .is_some_and(|all| all.into_iter().any(works))
    }

    /// All descendants of the process `pid`. Returns `None` if the system does not list them.
    fn below_process(&self, pid: u32) -> Option<Vec<u32>> {
        let mut all = self.children(pid)?;
        let mut at = 0;
        while let Some(child) = all.get(at) {
            all.extend(self.children(*child).unwrap_or_default());
            at += 1;
        }
        Some(all)
    }

    /// The `/proc` directories of the threads of the process `pid`.
    fn threads(&self, pid: u32) -> std::io::Result<impl Iterator<Item = PathBuf>> {
        let threads = std::fs::read_dir(self.root.join(format!("proc/{pid}/task")))?;
        Ok(threads.flatten().map(|thread| thread.path()))
    }

    fn children(&self, pid: u32) -> Option<Vec<u32>> {
        let mut children = Vec::new();
        for thread in self.threads(pid).ok()? {
            let text = match std::fs::read_to_string(thread.join("children")) {
                Ok(text) => text,
                // The thread has ended meanwhile.
                Err(_) if !thread.exists() => continue,
                Err(_) => return None,
            };
            children.extend(
                text.split_whitespace()
                    .filter_map(|pid| pid.parse::<u32>().ok()),
            );
        }
        Some(children)
    }

    fn used(&self, pid: u32) -> Option<u64> {
        let status = std::fs::read_to_string(self.root.join(format!("proc/{pid}/status"))).ok()?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("RssAnon:"))?;
        Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
    }

    /// Whether the process `pid` is stopped (Ctrl-Z, a debugger) and all its descendants are idle.
    /// The descendants are in process groups of their own, so they may continue to run.
    pub(crate) fn is_at_rest(&self, pid: u32) -> bool {
        let stopped = state(&self.root.join(format!("proc/{pid}")))
            .is_some_and(|state| matches!(state, 'T' | 't'));
        stopped && !self.works_below(pid)
    }
}

/// State letter of the process or thread with this `/proc` directory.
fn state(folder: &Path) -> Option<char> {
    let stat = std::fs::read_to_string(folder.join("stat")).ok()?;
    // The program name in parentheses may contain any characters.
    stat.rsplit_once(") ")?.1.chars().next()
}

/// Memory that the limit of the group at `folder` leaves, in bytes, or `None` without a limit. File
/// pages do not count as used, because the kernel drops them first.
fn left_in(folder: &Path, version: u8) -> Option<u64> {
    let text = |name: &str| std::fs::read_to_string(folder.join(name)).ok();
    // The value `max` means no limit.
    let number = |name: &str| text(name)?.trim().parse::<u64>().ok();
    let (limit, used, of_files) = match version {
        1 => (
            number("memory.limit_in_bytes")?,
            "memory.usage_in_bytes",
            ["total_inactive_file", "total_active_file"],
        ),
        // Above `memory.high`, the kernel throttles processes.
        _ => (
            [number("memory.max"), number("memory.high")]
                .into_iter()
                .flatten()
                .min()?,
            "memory.current",
            ["inactive_file", "active_file"],
        ),
    };
    let stat = text("memory.stat").unwrap_or_default();
    let files: u64 = of_files.iter().filter_map(|name| field(&stat, name)).sum();
    Some(limit.saturating_sub(number(used)?.saturating_sub(files)))
}

/// The number after `name`, on a line of its own.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    line.trim().parse().ok()
}

// Directories of the control groups (version 1 and 2) that limit this process.

/// A control group and its mount point.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Group {
    /// Directory that the groups of this hierarchy are mounted at.
    pub(crate) root: PathBuf,
    /// Directory of the group. In a container, this may be the outer path, which does not exist
    /// inside.
    pub(crate) folder: PathBuf,
    /// Version of the control groups: 1 or 2.
    pub(crate) version: u8,
}

impl Group {
    /// Returns the directories of this group and its ancestors, innermost first. The limits of all
    /// of them apply.
    pub(crate) fn with_those_around(&self) -> impl Iterator<Item = &Path> {
        self.folder
            .ancestors()
            .take_while(|folder| folder.starts_with(&self.root))
    }
}

/// Returns the groups that limit this process for `controller`. `root`: the directory that all
/// paths are relative to, `/` except in tests.
pub(crate) fn groups_of_this_process(root: &Path, controller: &str) -> Vec<Group> {
    let groups = std::fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    groups
        .lines()
        .filter_map(|line| group(root, line, controller))
        .collect()
}

/// Parses a line of `/proc/self/cgroup`. Returns the group if its hierarchy has `controller`.
fn group(root: &Path, line: &str, controller: &str) -> Option<Group> {
    let mut fields = line.splitn(3, ':');
    let (number, kinds, group) = (fields.next()?, fields.next()?, fields.next()?);
    let mounted = root.join("sys/fs/cgroup");
    let (root, version) = match kinds {
        "" if number == "0" => (mounted, 2),
        _ if kinds.split(',').any(|kind| kind == controller) => (mounted.join(controller), 1),
        _ => return None,
    };
    let folder = root.join(group.trim_start_matches('/'));
    Some(Group {
        root,
        folder,
        version,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, Machine) {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = root.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let machine = Machine::below(root.path());
        (root, machine)
    }

    #[test]
    fn free_memory_respects_every_limit() {
        let info = (
            "proc/meminfo",
            "MemTotal: 100 kB\nMemAvailable:      90 kB\n",
        );
        assert_eq!(machine(&[]).1.free(), None);
        assert_eq!(machine(&[info]).1.free(), Some(90 << 10));
        // Version 2: the outer group has the narrower limit, and uses mostly file pages.
        let two = [
            info,
            ("proc/self/cgroup", "0::/a/b\n"),
            ("sys/fs/cgroup/a/memory.max", "80000\n"),
            ("sys/fs/cgroup/a/memory.current", "70000\n"),
            (
                "sys/fs/cgroup/a/memory.stat",
                "anon 1\ninactive_file 30000\nactive_file 10000\n",
            ),
            ("sys/fs/cgroup/a/b/memory.max", "max\n"),
            ("sys/fs/cgroup/a/b/memory.current", "70000\n"),
        ];
        let (root, found) = machine(&two);
        assert_eq!(found.free(), Some(50_000));
        std::fs::write(root.path().join("sys/fs/cgroup/a/b/memory.high"), "70001").unwrap();
        assert_eq!(found.free(), Some(1));
        std::fs::write(
            root.path().join("sys/fs/cgroup/a/b/memory.events"),
            "oom 7\noom_kill 3\n",
        )
        .unwrap();
        assert_eq!(found.killed(), 3);
        let one = [
            info,
            ("proc/self/cgroup", "4:memory:/outside/x\n0::/\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "5000"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "4000"),
            (
                "sys/fs/cgroup/memory/memory.stat",
                "inactive_file 9\ntotal_inactive_file 100\ntotal_active_file 10\n",
            ),
        ];
        assert_eq!(machine(&one).1.free(), Some(1110));
    }

    #[test]
    #[expect(clippy::disallowed_types, reason = "child processes to measure")]
    fn reads_memory_and_state_of_children() {
        let here = Machine::below(Path::new("/"));
        // A child that starts another process, which computes until it is killed.
        let mut child = std::process::Command::new("sh")
            .args(["-c", "sh -c 'while :; do :; done' & echo $!; wait"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        std::io::BufRead::read_line(
            &mut std::io::BufReader::new(child.stdout.as_mut().unwrap()),
            &mut line,
        )
        .unwrap();
        let below: i32 = line.trim().parse().unwrap();
        let signal = |pid: i32, signal| {
            rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), signal)
                .unwrap();
        };
        let pid = child.id();
        assert!(here.of_children(pid).unwrap() > 0);
        assert!(!here.is_at_rest(pid), "the process is not stopped");
        let stopped = |pid: u32| state(Path::new(&format!("/proc/{pid}"))) == Some('T');
        signal(pid.cast_signed(), rustix::process::Signal::STOP);
        while !stopped(pid) {
            std::thread::yield_now();
        }
        assert!(!here.is_at_rest(pid), "its child still runs");
        signal(below, rustix::process::Signal::STOP);
        while !stopped(below.cast_unsigned()) {
            std::thread::yield_now();
        }
        assert!(here.is_at_rest(pid));
        signal(below, rustix::process::Signal::KILL);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn finds_groups_of_both_versions() {
        let at = |line| group(Path::new("/"), line, "pids").map(|group| (group.root, group.folder));
        assert_eq!(
            at("8:pids:/x/y"),
            Some((
                "/sys/fs/cgroup/pids".into(),
                "/sys/fs/cgroup/pids/x/y".into()
            ))
        );
        assert_eq!(
            at("0::/"),
            Some(("/sys/fs/cgroup".into(), "/sys/fs/cgroup/".into()))
        );
        assert_eq!(at("3:cpuset:/"), None);
        let group = Group {
            root: "/g".into(),
            folder: "/g/a/b".into(),
            version: 2,
        };
        let ancestors: Vec<&Path> = group.with_those_around().collect();
        assert_eq!(ancestors, ["/g/a/b", "/g/a", "/g"].map(Path::new));
    }
}
