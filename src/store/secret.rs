//! The key that records and images of a shared cache are signed with (`OFFLD_CACHE_KEY`). Who has it can sign, and what it signed is
//! trusted, so its file must be one that nobody else can read; there is no link without it once it is asked for.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use anyhow::{Context, Result, bail};
use rustix::fs::OFlags;

use super::Digest;
#[cfg(feature = "remote-cache")]
use super::KeyBuilder;
use super::settings::user_name;
use crate::sys::session::{OFFLD_CACHE_KEY, Session};

/// The fewest bytes of a key: as many as BLAKE3's digest has.
const SHORTEST: usize = 32;
/// The most: larger files were meant for something else.
const LONGEST: usize = 64 << 10;
/// What the file's bytes are made the key for.
const PURPOSE: &str = "offld cache: signatures of shared records and images 1";
/// What the key is made its fingerprint for.
const FINGERPRINT: &str = "offld cache: whom the shared cache is trusted by 1";

/// A key, which is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretKey([u8; 32]);

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretKey")
    }
}

impl SecretKey {
    /// The key in the file that the environment names; `None` where it names none.
    ///
    /// # Errors
    /// See [`SecretKey::read`].
    pub(crate) fn of_environment() -> Result<Option<Self>> {
        let Some(file) = Session::env(OFFLD_CACHE_KEY) else { return Ok(None) };
        SecretKey::read(Path::new(&file)).map(Some)
    }

    /// The key in `file`: all of its bytes count.
    ///
    /// # Errors
    /// It cannot be read, is no regular file, belongs to somebody else than this user or root, can be read or written by others, or
    /// has fewer than 32 bytes or more than 64 KiB.
    pub fn read(file: &Path) -> Result<Self> {
        let bytes = contents(file).with_context(|| format!("{OFFLD_CACHE_KEY}: the key `{}` is not used", file.display()))?;
        Ok(SecretKey(blake3::derive_key(PURPOSE, &bytes)))
    }

    /// What tells this key from another, and does not tell the key: it signs nothing.
    pub(crate) fn fingerprint(&self) -> Digest {
        Digest::derived(FINGERPRINT, &self.0)
    }

    /// What makes digests that only who has the key can make.
    #[cfg(feature = "remote-cache")]
    pub(crate) fn builder(&self) -> KeyBuilder {
        KeyBuilder::keyed(&self.0)
    }
}

/// The bytes of a key's file.
fn contents(path: &Path) -> Result<Vec<u8>> {
    // Without waiting, should it be a pipe.
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).context("flags")?;
    let file = File::options().read(true).custom_flags(flags).open(path).context("it cannot be opened")?;
    let meta = file.metadata().context("it cannot be looked at")?;
    if !meta.is_file() {
        bail!("it is not a regular file");
    }
    if let Some(why) = readable_by_others(meta.uid(), meta.mode(), rustix::process::geteuid().as_raw()) {
        bail!(why);
    }
    let mut bytes = Vec::new();
    file.take(LONGEST as u64 + 1).read_to_end(&mut bytes).context("it cannot be read")?;
    match bytes.len() {
        0..SHORTEST => bail!("it has {} bytes, and must have at least {SHORTEST}", bytes.len()),
        SHORTEST..=LONGEST => Ok(bytes),
        _ => bail!("it has more than 64 KiB, so it is no key"),
    }
}

/// Why a file with this owner and mode is not `user`'s secret.
fn readable_by_others(owner: u32, mode: u32, user: u32) -> Option<String> {
    if owner != user && owner != 0 {
        return Some(format!("it belongs to {}", user_name(owner)));
    }
    let mode = mode & 0o7777;
    (mode & 0o077 != 0).then(|| format!("others than its owner may use it (its mode is {mode:04o}): `chmod 600` makes it secret"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    use super::*;

    /// A file of these bytes and this mode, and its folder.
    fn file(bytes: &[u8], mode: u32) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        std::fs::write(&path, bytes).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        (dir, path)
    }

    fn why_not(path: &Path) -> String {
        let why = format!("{:#}", SecretKey::read(path).unwrap_err());
        assert!(why.contains(&path.display().to_string()) && why.starts_with("OFFLD_CACHE_KEY: "), "{why}");
        why
    }

    #[test]
    fn every_byte_counts_and_none_is_shown() {
        let (_one, path) = file(&[b'k'; 32], 0o400);
        let key = SecretKey::read(&path).unwrap();
        assert_eq!(format!("{key:?}"), "SecretKey");
        let (_two, other) = file(&[b'k'; 33], 0o600);
        let other = SecretKey::read(&other).unwrap();
        assert_ne!(other, key);
        assert_ne!(other.fingerprint(), key.fingerprint());
        assert_ne!(*key.fingerprint().bytes(), key.0);
        // By a symbolic link, as container systems hand secrets in.
        let link = path.with_file_name("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert_eq!(SecretKey::read(&link).unwrap(), key);
    }

    #[test]
    fn what_is_no_secret_is_an_error_that_names_it() {
        for mode in [0o640, 0o604, 0o620, 0o601, 0o644] {
            let (_dir, path) = file(&[b'k'; 32], mode);
            assert!(why_not(&path).contains("others than its owner"), "{mode:o}");
        }
        let (dir, short) = file(&[b'k'; 31], 0o600);
        assert!(why_not(&short).contains("it has 31 bytes"));
        assert!(why_not(dir.path()).contains("not a regular file"));
        assert!(why_not(&dir.path().join("none")).contains("cannot be opened"));
        let (_dir, long) = file(&vec![b'k'; LONGEST + 1], 0o600);
        assert!(why_not(&long).contains("more than 64 KiB"));
        assert!(why_not(Path::new("/dev/null")).contains("not a regular file"));
    }

    #[test]
    fn it_is_its_users_or_roots() {
        assert_eq!(readable_by_others(1000, 0o100_600, 1000), None);
        assert_eq!(readable_by_others(0, 0o100_400, 1000), None);
        assert_eq!(readable_by_others(0, 0o100_400, 0), None);
        for user in [0, 1001] {
            assert!(readable_by_others(4_000_000_000, 0o100_600, user).unwrap().contains("user 4000000000"));
        }
        assert!(readable_by_others(1000, 0o100_640, 1000).unwrap().contains("0640"));
    }
}
