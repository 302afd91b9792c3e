//! Decides whether file timestamps can be trusted, based on the mount that a file is on.
//!
//! The kernel sets a file's ctime on every change, but only on file systems that store it, and only
//! for changes on this machine. In a file system image (squashfs, erofs, an ext4 image, an overlay
//! layer), the creator chose the timestamps. They are often equal in all versions of the image. A
//! user space file system (FUSE) can report any timestamps.
//!
//! So timestamps are trusted on known file systems only, and only within one mount. The kernel
//! numbers mounts, and reuses no number until the next boot.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Mutex, OnceLock};

use rustix::fs::{StatFs, StatVfsMountFlags, StatxFlags};

use crate::store::Digest;
use crate::sys::threads::lock;

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
            return identify(path, major, None);
        };
        let mut known = lock(KNOWN.get_or_init(Mutex::default));
        *known
            .entry(unique)
            .or_insert_with(|| identify(path, major, Some(unique)))
    }

    /// The mount with this number in a [`super::file_snapshot::FileStat`].
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
    rustix::fs::statfs(path).is_ok_and(|system| DATE_FOLDERS.contains(&kind(&system)))
}

fn kind(system: &StatFs) -> u32 {
    system.f_type as u32
}

fn identify(path: &Path, major: u32, unique: Option<u64>) -> Mount {
    // Without information, timestamps are not trusted.
    let Ok(system) = rustix::fs::statfs(path) else {
        return Mount(UNKNOWN);
    };
    if MEMORY.contains(&kind(&system)) {
        return Mount(IN_MEMORY);
    }
    let (disk, network) = (
        DISKS.contains(&kind(&system)),
        NETWORK.contains(&kind(&system)),
    );
    if !disk && !network && !IMAGES.contains(&kind(&system)) {
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
        assert!(!identify(Path::new("/proc/self/status"), 0, Some(1)).is_believed());
        assert!(!identify(Path::new("/proc/self/status"), 0, None).is_believed());
        assert!(!identify(Path::new("/nowhere/at/all"), 0, Some(1)).is_believed());
        let memory = Path::new("/dev/shm");
        if rustix::fs::statfs(memory).is_ok_and(|system| MEMORY.contains(&kind(&system))) {
            assert_eq!(identify(memory, 0, Some(1)), identify(memory, 0, None));
            assert_eq!(identify(memory, 0, Some(1)).number(), IN_MEMORY);
        }
    }
}
