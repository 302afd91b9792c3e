//! What the mount that a file is found on tells of its stamps. Only the kernel sets a file's time of change, but only where it can
//! write: the stamps in an image (squashfs, erofs, an ext4 image) are whatever its maker put there, often the same in each version
//! of it. So stamps on a read-only mount are those of one mount, which the kernel numbers, and no number is given twice until the
//! next boot.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};

use rustix::fs::{StatVfsMountFlags, StatxFlags};

use crate::store::Digest;

/// Asks for the number of a mount that is never used again (since Linux 6.8), in the place where older kernels give one that is.
pub(super) const UNIQUE_MOUNT: StatxFlags = StatxFlags::from_bits_retain(0x4000);
/// A mount whose files can be written to: it says nothing.
pub(super) const WRITABLE: u64 = 0;
/// A read-only mount that cannot be told from another one.
pub(super) const UNKNOWN: u64 = u64::MAX;

/// File systems that date a folder whenever an entry of it appears or goes: ext2 to ext4, XFS, Btrfs, tmpfs, overlayfs, F2FS, ZFS,
/// bcachefs.
const DATE_FOLDERS: [u32; 8] =
    [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0x794c_7630, 0xf2f5_2010, 0x2fc1_2fc1, 0xca45_1a4e];

/// What identifies the mount of the file at `path` where its stamps hold for that mount only, else [`WRITABLE`]. `unique`: the
/// number that the kernel gave with [`UNIQUE_MOUNT`].
pub(super) fn identity(path: &Path, unique: Option<u64>) -> u64 {
    static KNOWN: OnceLock<Mutex<HashMap<u64, u64>>> = OnceLock::new();
    let Some(unique) = unique else { return if is_read_only(path) { UNKNOWN } else { WRITABLE } };
    let mut known = KNOWN.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    *known.entry(unique).or_insert_with(|| if is_read_only(path) { numbered(unique) } else { WRITABLE })
}

/// Whether the folder at `path` is on a file system that dates it whenever an entry of it appears or goes.
pub(super) fn dates_folders(path: &Path) -> bool {
    rustix::fs::statfs(path).is_ok_and(|system| DATE_FOLDERS.contains(&(system.f_type as u32)))
}

fn is_read_only(path: &Path) -> bool {
    // What cannot be asked is not believed.
    rustix::fs::statvfs(path).map_or(true, |system| system.f_flag.contains(StatVfsMountFlags::RDONLY))
}

/// The mount of this number since the system was started.
fn numbered(unique: u64) -> u64 {
    let Ok(boot) = std::fs::read_to_string("/proc/sys/kernel/random/boot_id") else { return UNKNOWN };
    let digest = Digest::of(format!("{} {unique}", boot.trim()).as_bytes());
    let number = digest.bytes().first_chunk().map_or(UNKNOWN, |first| u64::from_le_bytes(*first));
    number.clamp(WRITABLE + 1, UNKNOWN - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_can_be_written_to_says_nothing() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(identity(dir.path(), None), WRITABLE);
        assert!(numbered(1) != numbered(2) && numbered(1) == numbered(1));
    }
}
