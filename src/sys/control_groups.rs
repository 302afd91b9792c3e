//! Directories of the control groups (version 1 and 2) that limit this process.

use std::path::{Path, PathBuf};

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
pub(crate) fn of_this_process(root: &Path, controller: &str) -> Vec<Group> {
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
