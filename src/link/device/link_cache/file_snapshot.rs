//! Detects changed files by size, timestamps and inode number ([`FileStat`]), or by a digest of the
//! contents if those are not conclusive. The mount of a file decides whether its timestamps count.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, CWD, StatFs, StatVfsMountFlags, StatxFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use offld_system::store::Digest;
use offld_system::threads::lock;

/// Size limit in bytes for comparing contents if the record has no stat. Larger files count as
/// changed.
const LARGEST_COMPARED: u64 = 1 << 30;
/// The time after which file systems give a change another timestamp, at most.
const STEP: Duration = Duration::from_millis(20);

/// Size, inode number, mtime, ctime and device number of a file, in that order, and the number of
/// its mount ([`Mount`]).
///
/// Equal stats mean equal contents if the first one is trusted ([`FileStat::believed`]) and the
/// file was settled at that time ([`FileStat::settled`]). The reason is that only the kernel sets
/// the ctime, on every change of the contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct FileStat(u64, u64, i64, i64, i64, i64, u64, u64);

impl FileStat {
    /// Reads the stat of the file or directory at `path`, following symlinks.
    pub(super) fn of(path: &Path) -> io::Result<FileStat> {
        let asked = StatxFlags::BASIC_STATS | UNIQUE_MOUNT;
        // `FORCE_SYNC` asks the server of a network file system again, as an `open` by the linker
        // does.
        match rustix::fs::statx(CWD, path, AtFlags::STATX_FORCE_SYNC, asked) {
            Ok(found) => {
                let unique =
                    (found.stx_mask & UNIQUE_MOUNT.bits() != 0).then_some(found.stx_mnt_id);
                let (modified, changed) = (found.stx_mtime, found.stx_ctime);
                Ok(FileStat(
                    found.stx_size,
                    found.stx_ino,
                    modified.tv_sec,
                    modified.tv_nsec.into(),
                    changed.tv_sec,
                    changed.tv_nsec.into(),
                    rustix::fs::makedev(found.stx_dev_major, found.stx_dev_minor),
                    Mount::of(path, found.stx_dev_major, unique).number(),
                ))
            }
            // Some containers forbid the newer system call.
            Err(Errno::NOSYS | Errno::PERM) => {
                let meta = std::fs::metadata(path)?;
                let mount = Mount::of(path, rustix::fs::major(meta.dev()), None).number();
                let times = [
                    meta.mtime(),
                    meta.mtime_nsec(),
                    meta.ctime(),
                    meta.ctime_nsec(),
                ];
                Ok(FileStat(
                    meta.len(),
                    meta.ino(),
                    times[0],
                    times[1],
                    times[2],
                    times[3],
                    meta.dev(),
                    mount,
                ))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The size in bytes.
    pub(super) fn size(&self) -> u64 {
        self.0
    }

    /// Whether `other` is the same file on a local disk that was mounted again. The device number
    /// can change with each mount.
    pub(super) fn is_mounted_anew(&self, other: &FileStat) -> bool {
        let same = FileStat(
            self.0, self.1, self.2, self.3, self.4, self.5, other.6, other.7,
        ) == *other;
        same && self.is_on_disk() && other.is_on_disk()
    }

    /// Whether the file is on a local disk, as opposed to a file system image, whose timestamps its
    /// creator chose.
    pub(super) fn is_on_disk(&self) -> bool {
        Mount::of_number(self.7).is_disk()
    }

    /// The mtime, for cache keys.
    pub(super) fn modified(&self) -> [u8; 16] {
        ((i128::from(self.2) << 32) + i128::from(self.3)).to_le_bytes()
    }

    /// All fields, for local cache keys that must change with a directory. Archivers such as `tar`
    /// set mtimes, so the ctime is included.
    pub(super) fn identity(&self) -> [u8; 64] {
        let FileStat(size, inode, modified, modified_ns, changed, changed_ns, device, mount) =
            *self;
        let times = [modified, modified_ns, changed, changed_ns].map(i64::to_le_bytes);
        let parts = [size, inode, device, mount]
            .map(u64::to_le_bytes)
            .into_iter()
            .chain(times);
        let mut all = [0; 64];
        all.chunks_exact_mut(8)
            .zip(parts)
            .for_each(|(place, part)| place.copy_from_slice(&part));
        all
    }

    /// Whether an equal stat at another time means equal contents. False if anything but the kernel
    /// may have set the timestamps.
    pub(super) fn believed(&self) -> bool {
        Mount::of_number(self.7).is_believed()
    }

    /// Whether the last change is long enough before `moment` that any later change gets another
    /// ctime.
    ///
    /// Timestamps advance in steps of some milliseconds, and two changes within one step have the
    /// same ctime. Without nanoseconds, the file system most probably counts in steps of one or two
    /// seconds.
    pub(super) fn settled(&self, moment: SystemTime) -> bool {
        const WHOLE_SECONDS: Duration = Duration::from_millis(2020);
        self.at_rest(moment, if self.5 == 0 { WHOLE_SECONDS } else { STEP })
    }

    /// Whether the last change is more than `rest` before `moment`.
    pub(super) fn at_rest(&self, moment: SystemTime, rest: Duration) -> bool {
        let Ok(now) = moment.duration_since(SystemTime::UNIX_EPOCH) else {
            return false;
        };
        let Some(now) = now.checked_sub(rest) else {
            return false;
        };
        // A ctime in the future means that the clock was set back. Such a file never counts as
        // settled.
        (self.4, self.5)
            < (
                i64::try_from(now.as_secs()).unwrap_or(0),
                i64::from(now.subsec_nanos()),
            )
    }
}

/// Computes the digest of a file's contents. Fails unless it is a regular file.
pub(in crate::link::device) fn digest(path: &Path) -> io::Result<Digest> {
    let mut file = File::open(path)?;
    if !file.metadata()?.is_file() {
        // Reading a pipe would take its contents from the tool that needs them.
        return Err(io::Error::other("not a regular file"));
    }
    Digest::of_stream(&mut file)
}

/// The state of a file at one time: path, stat, and digest of the contents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileSnapshot {
    /// The path, as the tool that read the file named it.
    pub(super) path: String,
    /// The stat. `None` if it was not settled, is not trusted, or comes from another machine. Then
    /// only the contents are compared.
    pub(super) stat: Option<FileStat>,
    /// The digest of the contents, in hexadecimal.
    pub(super) digest: String,
}

impl FileSnapshot {
    /// Takes a snapshot of the file at `path`.
    ///
    /// `before`: the start time of the tool that read the file. A later change is an error, because
    /// the tool may have read either contents. `known`: digests of files that were read just now.
    pub(super) fn take(
        path: &str,
        before: SystemTime,
        known: &HashMap<FileStat, String>,
    ) -> Result<FileSnapshot, String> {
        let io_error = |error: io::Error| format!("{path}: {error}");
        let stat = FileStat::of(Path::new(path)).map_err(io_error)?;
        if !stat.settled(before) {
            return Err(format!(
                "{path} was modified too recently to detect a later change"
            ));
        }
        if let Some(digest) = known.get(&stat) {
            return Ok(FileSnapshot {
                path: path.to_owned(),
                stat: Some(stat),
                digest: digest.clone(),
            });
        }
        let digest = digest(Path::new(path)).map_err(io_error)?.to_string();
        if FileStat::of(Path::new(path)).map_err(io_error)? != stat {
            return Err(format!("{path} has changed while offld read the file"));
        }
        Ok(FileSnapshot {
            path: path.to_owned(),
            stat: Some(stat).filter(FileStat::believed),
            digest,
        })
    }

    /// Fails, with the reason, unless the file still has the same contents. Returns whether the
    /// stat was updated. `now`: a time before this call.
    pub(super) fn revalidate(&mut self, now: SystemTime) -> Result<bool, String> {
        let path = Path::new(&self.path);
        let Ok(stat) = FileStat::of(path) else {
            return Err(format!("{} was removed", self.path));
        };
        if self.stat == Some(stat) {
            return Ok(false);
        }
        // A record from another machine can name any file here, so the work is bounded.
        if self.stat.is_none() && stat.size() > LARGEST_COMPARED {
            return Err(format!("{} is too large to compare", self.path));
        }
        let same_size = self.stat.is_none_or(|old| old.size() == stat.size());
        if !same_size
            || digest(path).map(|digest| digest.to_string()).ok().as_ref() != Some(&self.digest)
        {
            return Err(format!("{} has changed", self.path));
        }
        let known = std::mem::replace(
            &mut self.stat,
            Some(stat).filter(|stat| stat.believed() && stat.settled(now)),
        );
        Ok(self.stat != known)
    }
}

/// Waits until a change of a directory gets another timestamp than the previous change.
#[cfg(test)]
pub(super) fn wait_for_timestamp_step() {
    std::thread::sleep(STEP);
}

/// Writes a file until its ctime differs from before, because two changes within one timestamp step
/// look the same.
#[cfg(test)]
pub(super) fn write_anew(path: &Path, bytes: &[u8]) {
    let before = FileStat::of(path).ok();
    loop {
        std::fs::write(path, bytes).unwrap();
        let after = FileStat::of(path).unwrap();
        if before.is_none_or(|before| (before.4, before.5) != (after.4, after.5)) {
            break;
        }
    }
}

// Decides whether file timestamps can be trusted, based on the mount that a file is on.
//
// The kernel sets a file's ctime on every change, but only on file systems that store it, and only
// for changes on this machine. In a file system image (squashfs, erofs, an ext4 image, an overlay
// layer), the creator chose the timestamps. They are often equal in all versions of the image. A
// user space file system (FUSE) can report any timestamps.
//
// So timestamps are trusted on known file systems only, and only within one mount. The kernel
// numbers mounts, and reuses no number until the next boot.

/// Requests a mount number that is never reused (since Linux 6.8), in the field where older kernels
/// return a reusable one.
pub(super) const UNIQUE_MOUNT: StatxFlags = StatxFlags::from_bits_retain(0x4000);
/// Number of all mounts in memory. Only the kernel has set timestamps there, so they are valid on
/// any such mount.
const IN_MEMORY: u64 = 0;
/// Number of a mount that cannot be distinguished from others, or whose timestamps are not trusted.
const UNKNOWN: u64 = u64::MAX;
/// Bit of a mount number: the file system may have been created elsewhere, with all its timestamps.
const IMAGE: u64 = 1;

/// tmpfs and ramfs, which are empty when they are mounted.
const MEMORY: [u32; 2] = [0x0102_1994, 0x8584_58f6];
/// Disk file systems with ctimes: ext2 to ext4, XFS, Btrfs, F2FS, ZFS, bcachefs, JFS, ReiserFS.
const DISKS: [u32; 8] = [
    0xef53,
    0x5846_5342,
    0x9123_683e,
    0xf2f5_2010,
    0x2fc1_2fc1,
    0xca45_1a4e,
    0x3153_464a,
    0x5265_4973,
];
/// File systems for images, alone or in layers: squashfs, erofs, cramfs, romfs, ISO 9660,
/// overlayfs.
const IMAGES: [u32; 6] = [
    0x7371_7368,
    0xe0f5_e1e2,
    0x28cd_3d45,
    0x7275,
    0x9660,
    0x794c_7630,
];
/// Network and cluster file systems with ctimes: NFS, Lustre, GPFS, Ceph, GFS2, OCFS2.
const NETWORK: [u32; 6] = [
    0x6969,
    0x0bd0_0bd0,
    0x4750_4653,
    0x00c3_6400,
    0x0116_1970,
    0x7461_636f,
];
/// File systems that update a directory's timestamps whenever an entry appears or disappears: ext2
/// to ext4, XFS, Btrfs, tmpfs, overlayfs, F2FS, ZFS, bcachefs.
const DATE_FOLDERS: [u32; 8] = [
    0xef53,
    0x5846_5342,
    0x9123_683e,
    0x0102_1994,
    0x794c_7630,
    0xf2f5_2010,
    0x2fc1_2fc1,
    0xca45_1a4e,
];
/// Major device number of file systems without a device: Btrfs, ZFS and overlayfs do not report
/// theirs.
const NO_DEVICE: u32 = 0;
/// Major numbers of devices backed by files or remote data: ram, loop, nbd.
const FILE_BACKED: [u32; 3] = [1, 7, 43];

/// A mount number that shows how far timestamps can be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mount(u64);

impl Mount {
    /// Identifies the mount of the file at `path`, on a device with the number `major`. `unique`:
    /// the number returned for [`UNIQUE_MOUNT`].
    pub(super) fn of(path: &Path, major: u32, unique: Option<u64>) -> Mount {
        static KNOWN: OnceLock<Mutex<HashMap<u64, Mount>>> = OnceLock::new();
        let Some(unique) = unique else {
            return identify_mount(path, major, None);
        };
        let mut known = lock(KNOWN.get_or_init(Mutex::default));
        *known
            .entry(unique)
            .or_insert_with(|| identify_mount(path, major, Some(unique)))
    }

    /// The mount with this number in a [`FileStat`].
    pub(super) fn of_number(number: u64) -> Mount {
        Mount(number)
    }

    /// The mount number: 0 for all file systems in memory, so that timestamps are valid on any of
    /// them.
    pub(super) fn number(self) -> u64 {
        self.0
    }

    /// Whether equal timestamps of a file mean equal contents.
    pub(super) fn is_believed(self) -> bool {
        self.0 != UNKNOWN
    }

    /// Whether the mount is a local disk. After a new mount (another boot or container), its
    /// timestamps are still trusted if the build ids are equal, too.
    pub(super) fn is_disk(self) -> bool {
        self.is_believed() && self.0 & IMAGE == 0
    }
}

/// Whether the file system updates the timestamps of the directory at `path` whenever an entry
/// appears or disappears.
pub(super) fn dates_folders(path: &Path) -> bool {
    rustix::fs::statfs(path).is_ok_and(|system| DATE_FOLDERS.contains(&file_system_kind(&system)))
}

fn file_system_kind(system: &StatFs) -> u32 {
    system.f_type as u32
}

fn identify_mount(path: &Path, major: u32, unique: Option<u64>) -> Mount {
    // Without information, timestamps are not trusted.
    let Ok(system) = rustix::fs::statfs(path) else {
        return Mount(UNKNOWN);
    };
    if MEMORY.contains(&file_system_kind(&system)) {
        return Mount(IN_MEMORY);
    }
    let (disk, network) = (
        DISKS.contains(&file_system_kind(&system)),
        NETWORK.contains(&file_system_kind(&system)),
    );
    if !disk && !network && !IMAGES.contains(&file_system_kind(&system)) {
        return Mount(UNKNOWN);
    }
    let is_read_only = rustix::fs::statvfs(path).map_or(true, |system| {
        system.f_flag.contains(StatVfsMountFlags::RDONLY)
    });
    let is_from_file = FILE_BACKED.contains(&major);
    let image = !disk || is_read_only || is_from_file || major == NO_DEVICE;
    match unique {
        Some(unique) => from_kernel_number(unique, image),
        // Older kernels reuse a number as soon as a mount is gone. File systems that cannot be
        // exchanged before the next boot share one number.
        None if network || (disk && !is_read_only && !is_from_file) => from_kernel_number(0, image),
        None => Mount(UNKNOWN),
    }
}

/// The mount with the kernel's number `unique`, combined with the boot id.
fn from_kernel_number(unique: u64, image: bool) -> Mount {
    static BOOT: OnceLock<Option<String>> = OnceLock::new();
    let boot = BOOT.get_or_init(|| std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok());
    let Some(boot) = boot else {
        return Mount(UNKNOWN);
    };
    let digest = Digest::of(format!("{} {unique}", boot.trim()).as_bytes());
    let number = digest
        .bytes()
        .first_chunk()
        .map_or(UNKNOWN, |first| u64::from_le_bytes(*first));
    let number = if image {
        number | IMAGE
    } else {
        number & !IMAGE
    };
    Mount(number.clamp(IN_MEMORY + 2, UNKNOWN - 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_other_contents_are_a_change() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("libx.a");
        let begun = SystemTime::now();
        std::fs::write(&file, "one").unwrap();
        let path = file.to_str().unwrap();
        assert!(
            FileSnapshot::take(path, begun, &HashMap::new())
                .unwrap_err()
                .contains("too recently")
        );
        let later = begun + Duration::from_secs(3600);
        let mut seen = FileSnapshot::take(path, later, &HashMap::new()).unwrap();
        assert_eq!(seen.revalidate(later), Ok(false));
        // First the same contents again, then other contents of the same size with the same mtime.
        let modified = std::fs::metadata(&file).unwrap().modified().unwrap();
        write_anew(&file, b"one");
        assert_eq!(seen.revalidate(later), Ok(true));
        write_anew(&file, b"two");
        File::options()
            .write(true)
            .open(&file)
            .unwrap()
            .set_modified(modified)
            .unwrap();
        assert!(seen.revalidate(later).unwrap_err().contains("has changed"));
        std::fs::remove_file(&file).unwrap();
        assert!(seen.revalidate(later).unwrap_err().contains("was removed"));
    }

    #[test]
    fn a_file_that_was_read_by_another_path_is_not_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let paths = ["one", "two"].map(|name| dir.path().join(name).to_str().unwrap().to_owned());
        std::fs::write(&paths[0], "contents").unwrap();
        std::fs::hard_link(&paths[0], &paths[1]).unwrap();
        let later = SystemTime::now() + Duration::from_secs(3600);
        let first = FileSnapshot::take(&paths[0], later, &HashMap::new()).unwrap();
        let known: HashMap<FileStat, String> = first
            .stat
            .into_iter()
            .map(|stat| (stat, "said".to_owned()))
            .collect();
        let digest_of = |path| FileSnapshot::take(path, later, &known).unwrap().digest;
        assert_eq!(
            digest_of(&paths[1]),
            if first.stat.is_some() {
                "said".to_owned()
            } else {
                first.digest.clone()
            }
        );
        write_anew(Path::new(&paths[1]), b"CONTENTS");
        assert!(![first.digest.as_str(), "said"].contains(&digest_of(&paths[1]).as_str()));
    }

    #[test]
    fn a_file_from_the_future_is_never_at_rest() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("f");
        std::fs::write(&file, "x").unwrap();
        let stat = FileStat::of(&file).unwrap();
        assert!(!stat.settled(SystemTime::now() - Duration::from_secs(3600)));
        assert!(stat.settled(SystemTime::now() + Duration::from_secs(3600)));
        assert!(!stat.settled(SystemTime::UNIX_EPOCH));
    }

    #[test]
    fn each_mount_has_its_number() {
        assert!(
            from_kernel_number(1, false) != from_kernel_number(2, false)
                && from_kernel_number(1, false) == from_kernel_number(1, false)
        );
        let (disk, image) = (from_kernel_number(1, false), from_kernel_number(1, true));
        assert!(disk.is_believed() && disk.is_disk() && image.is_believed() && !image.is_disk());
        assert!(!Mount(UNKNOWN).is_believed() && !Mount(UNKNOWN).is_disk());
    }

    #[test]
    fn file_systems_are_believed_by_their_kind() {
        // Timestamps of kernel files mean nothing.
        assert!(!identify_mount(Path::new("/proc/self/status"), 0, Some(1)).is_believed());
        assert!(!identify_mount(Path::new("/proc/self/status"), 0, None).is_believed());
        assert!(!identify_mount(Path::new("/nowhere/at/all"), 0, Some(1)).is_believed());
        let memory = Path::new("/dev/shm");
        if rustix::fs::statfs(memory)
            .is_ok_and(|system| MEMORY.contains(&file_system_kind(&system)))
        {
            assert_eq!(
                identify_mount(memory, 0, Some(1)),
                identify_mount(memory, 0, None)
            );
            assert_eq!(identify_mount(memory, 0, Some(1)).number(), IN_MEMORY);
        }
    }
}
