//! The control groups that limit this process, of version 1 and 2: where their folders are.

use std::path::{Path, PathBuf};

/// A control group, and where its kind is mounted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Group {
    /// Where the groups of its kind are.
    pub(crate) root: PathBuf,
    /// The group's folder. In a container this may be the path outside of it, which does not exist inside.
    pub(crate) folder: PathBuf,
    /// The version of control groups that it is of.
    pub(crate) version: u8,
}

impl Group {
    /// The folders of this group and of those around it, innermost first: the limits of each hold.
    pub(crate) fn with_those_around(&self) -> impl Iterator<Item = &Path> {
        self.folder.ancestors().take_while(|folder| folder.starts_with(&self.root))
    }
}

/// The groups that limit what `controller` counts, for this process. `root`: the folder that all paths are below, `/` but in tests.
pub(crate) fn of_this_process(root: &Path, controller: &str) -> Vec<Group> {
    let groups = std::fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    groups.lines().filter_map(|line| group(root, line, controller)).collect()
}

/// The group of a line of `/proc/self/cgroup`, if its kind counts what `controller` does.
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
    Some(Group { root, folder, version })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_both_versions_are_found() {
        let at = |line| group(Path::new("/"), line, "pids").map(|group| (group.root, group.folder));
        assert_eq!(at("8:pids:/x/y"), Some(("/sys/fs/cgroup/pids".into(), "/sys/fs/cgroup/pids/x/y".into())));
        assert_eq!(at("0::/"), Some(("/sys/fs/cgroup".into(), "/sys/fs/cgroup/".into())));
        assert_eq!(at("3:cpuset:/"), None);
        let group = Group { root: "/g".into(), folder: "/g/a/b".into(), version: 2 };
        let around: Vec<&Path> = group.with_those_around().collect();
        assert_eq!(around, ["/g/a/b", "/g/a", "/g"].map(Path::new));
    }
}
