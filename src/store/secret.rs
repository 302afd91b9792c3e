//! The key that signs records and images of a shared cache (`OFFLD_CACHE_KEY`). Holders of the key
//! can sign, and signed entries are trusted, so its file must not be readable by other users. If
//! the variable is set, a link fails without a valid key.

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

/// Minimum size of a key, in bytes: that of a BLAKE3 digest.
const SHORTEST: usize = 32;
/// Maximum size of a key, in bytes: larger files were meant for something else.
const LONGEST: usize = 64 << 10;
/// BLAKE3 context that derives the key from the bytes of the file.
const PURPOSE: &str = "offld cache: signatures of shared records and images 1";
/// BLAKE3 context that derives the fingerprint from the key.
const FINGERPRINT: &str = "offld cache: whom the shared cache is trusted by 1";

/// A key. It is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretKey([u8; 32]);

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretKey")
    }
}

impl SecretKey {
    /// Reads the key from the file that the environment names. Returns `None` if it names none.
    ///
    /// # Errors
    /// See [`SecretKey::read`].
    pub(crate) fn of_environment() -> Result<Option<Self>> {
        let Some(file) = Session::env(OFFLD_CACHE_KEY) else {
            return Ok(None);
        };
        SecretKey::read(Path::new(&file)).map(Some)
    }

    /// Reads the key from `file`. All bytes of the file count.
    ///
    /// # Errors
    /// The file cannot be read, is not a regular file, or has fewer than 32 bytes or more than 64
    /// KiB. Or it belongs to a user other than this one or root, or its mode gives other users
    /// access.
    pub fn read(file: &Path) -> Result<Self> {
        let bytes = contents(file).with_context(|| {
            format!("{OFFLD_CACHE_KEY}: cannot use the key `{}`", file.display())
        })?;
        Ok(SecretKey(blake3::derive_key(PURPOSE, &bytes)))
    }

    /// Fingerprint that identifies the key without revealing it. It signs nothing.
    pub(crate) fn fingerprint(&self) -> Digest {
        Digest::derived(FINGERPRINT, &self.0)
    }

    /// Starts a digest that only holders of the key can make.
    #[cfg(feature = "remote-cache")]
    pub(crate) fn builder(&self) -> KeyBuilder {
        KeyBuilder::keyed(&self.0)
    }
}

fn contents(path: &Path) -> Result<Vec<u8>> {
    // Do not block if the file is a pipe.
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).context("flags")?;
    let file = File::options()
        .read(true)
        .custom_flags(flags)
        .open(path)
        .context("cannot open the file")?;
    let meta = file
        .metadata()
        .context("cannot read the attributes of the file")?;
    if !meta.is_file() {
        bail!("not a regular file");
    }
    if let Some(why) =
        readable_by_others(meta.uid(), meta.mode(), rustix::process::geteuid().as_raw())
    {
        bail!(why);
    }
    let mut bytes = Vec::new();
    file.take(LONGEST as u64 + 1)
        .read_to_end(&mut bytes)
        .context("cannot read the file")?;
    match bytes.len() {
        0..SHORTEST => bail!("{} bytes, expected at least {SHORTEST}", bytes.len()),
        SHORTEST..=LONGEST => Ok(bytes),
        _ => bail!("more than 64 KiB, which is too large for a key"),
    }
}

/// Why a file with this owner and mode is not `user`'s secret.
fn readable_by_others(owner: u32, mode: u32, user: u32) -> Option<String> {
    if owner != user && owner != 0 {
        return Some(format!("the file belongs to {}", user_name(owner)));
    }
    let mode = mode & 0o7777;
    (mode & 0o077 != 0)
        .then(|| format!("its mode {mode:04o} lets other users access it; run `chmod 600`"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    use super::*;

    /// Creates a file with these bytes and this mode, in a temporary directory.
    fn file(bytes: &[u8], mode: u32) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        std::fs::write(&path, bytes).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        (dir, path)
    }

    fn why_not(path: &Path) -> String {
        let why = format!("{:#}", SecretKey::read(path).unwrap_err());
        assert!(
            why.contains(&path.display().to_string()) && why.starts_with("OFFLD_CACHE_KEY: "),
            "{why}"
        );
        why
    }

    #[test]
    fn every_byte_counts_and_none_is_printed() {
        let (_one, path) = file(&[b'k'; 32], 0o400);
        let key = SecretKey::read(&path).unwrap();
        assert_eq!(format!("{key:?}"), "SecretKey");
        let (_two, other) = file(&[b'k'; 33], 0o600);
        let other = SecretKey::read(&other).unwrap();
        assert_ne!(other, key);
        assert_ne!(other.fingerprint(), key.fingerprint());
        assert_ne!(*key.fingerprint().bytes(), key.0);
        // Through a symbolic link, as container systems provide secrets.
        let link = path.with_file_name("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert_eq!(SecretKey::read(&link).unwrap(), key);
    }

    #[test]
    fn a_readable_or_invalid_file_is_an_error_that_names_it() {
        for mode in [0o640, 0o604, 0o620, 0o601, 0o644] {
            let (_dir, path) = file(&[b'k'; 32], mode);
            assert!(
                why_not(&path).contains("lets other users access it"),
                "{mode:o}"
            );
        }
        let (dir, short) = file(&[b'k'; 31], 0o600);
        assert!(why_not(&short).contains(": 31 bytes"));
        assert!(why_not(dir.path()).contains("not a regular file"));
        assert!(why_not(&dir.path().join("none")).contains("cannot open the file"));
        let (_dir, long) = file(&vec![b'k'; LONGEST + 1], 0o600);
        assert!(why_not(&long).contains("more than 64 KiB"));
        assert!(why_not(Path::new("/dev/null")).contains("not a regular file"));
    }

    #[test]
    fn the_owner_must_be_the_user_or_root() {
        assert_eq!(readable_by_others(1000, 0o100_600, 1000), None);
        assert_eq!(readable_by_others(0, 0o100_400, 1000), None);
        assert_eq!(readable_by_others(0, 0o100_400, 0), None);
        for user in [0, 1001] {
            assert!(
                readable_by_others(4_000_000_000, 0o100_600, user)
                    .unwrap()
                    .contains("user 4000000000")
            );
        }
        assert!(
            readable_by_others(1000, 0o100_640, 1000)
                .unwrap()
                .contains("0640")
        );
    }
}
