//! Location and size limit of the cache: from the command line, else the environment, else in the
//! user's own cache directory. Cached data becomes part of programs. So the default directory is
//! used only if it belongs to the user and others cannot write to it. For root, the same must hold
//! for all of its parent directories. Also the key of a shared cache.

use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rustix::fs::OFlags;

use super::Digest;
#[cfg(feature = "remote-cache")]
use super::KeyBuilder;
use crate::environment::{
    self, Env, HOME, Named, OFFLD_CACHE, OFFLD_CACHE_KEY, OFFLD_CACHE_SIZE, XDG_CACHE_HOME,
    parse_size,
};

/// Default size limit, in bytes: 5 GiB.
pub(crate) const DEFAULT_LIMIT: u64 = 5 << 30;
/// Values that turn the cache off, and values that mean the default directory. A directory with
/// such a name is written as `./off`.
const OFF: [&str; 4] = ["off", "no", "false", "0"];
const ON: [&str; 4] = ["on", "yes", "true", "1"];

/// Cache settings of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// Directory of the cache; `None` if the cache is off.
    pub root: Option<PathBuf>,
    /// Whether it is the default directory, below the user's own cache directory.
    pub is_default: bool,
    /// Size limit, in bytes.
    pub limit: u64,
    /// Why the cache is off, if it is: `OFFLD_CACHE=off`.
    pub why_off: Option<String>,
    /// Whether it is off because of an invalid setting, about which the user should be warned.
    pub is_wrong: bool,
}

impl Setting {
    fn off(why: impl Into<String>) -> Setting {
        Setting {
            root: None,
            is_default: false,
            limit: 0,
            why_off: Some(why.into()),
            is_wrong: false,
        }
    }
}

/// Returns the directory of the cache that the environment names, or the keyword there.
pub fn named_by_environment(env: Env<'_>) -> Option<Named> {
    env(OFFLD_CACHE).map(|value| Named::new(OFFLD_CACHE, value))
}

/// Returns the settings of this process. `folder`: the value of `--wrapper-cache`, or
/// [`named_by_environment`].
///
/// Never fails: an invalid setting turns the cache off, and `why_off` has the reason.
pub fn resolve(folder: Option<Named>) -> Setting {
    resolve_in(folder, &environment::get)
}

fn resolve_in(folder: Option<Named>, env: Env<'_>) -> Setting {
    let limit = match env(OFFLD_CACHE_SIZE).map(|value| parse_size(&value)) {
        None => DEFAULT_LIMIT,
        Some(Ok(0)) => return Setting::off(format!("{OFFLD_CACHE_SIZE}=0")),
        Some(Ok(limit)) => limit,
        Some(Err(error)) => {
            return Setting {
                is_wrong: true,
                ..Setting::off(format!("{OFFLD_CACHE_SIZE}: {error}"))
            };
        }
    };
    let root = match folder {
        Some(Named { value, by }) if is_one_of(&value, &OFF) => {
            Err(format!("{by}={}", value.display()))
        }
        // A directory that the user named may belong to anyone: teams share directories.
        Some(Named { value, by }) if !is_one_of(&value, &ON) => {
            let absolute = std::path::absolute(&value)
                .map_err(|error| format!("{by}={}: {error}", value.display()));
            if absolute.as_deref().is_ok_and(is_not_a_directory) {
                let why = format!(
                    "{by}: `{}` is not a directory, and cannot become one",
                    value.display()
                );
                return Setting {
                    is_wrong: true,
                    ..Setting::off(why)
                };
            }
            absolute.map(|folder| (folder, false))
        }
        _ => default_folder(env).map(|folder| (folder, true)),
    };
    match root {
        Ok((root, is_default)) => Setting {
            root: Some(root),
            is_default,
            limit,
            why_off: None,
            is_wrong: false,
        },
        Err(why) => Setting::off(why),
    }
}

/// Whether `path`, or one of its parents, exists but is not a directory.
fn is_not_a_directory(path: &Path) -> bool {
    match std::fs::metadata(path) {
        Ok(meta) => !meta.is_dir(),
        Err(error) => error.kind() == std::io::ErrorKind::NotADirectory,
    }
}

fn is_one_of(value: &OsStr, words: &[&str]) -> bool {
    words.iter().any(|word| value.eq_ignore_ascii_case(word))
}

/// Returns the default directory, or why it cannot be used.
fn default_folder(env: Env<'_>) -> Result<PathBuf, String> {
    let absolute = |name: &str| {
        env(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    // XDG Base Directory Specification: relative paths count as unset.
    let parent = absolute(XDG_CACHE_HOME).or_else(|| Some(absolute(HOME)?.join(".cache")));
    let parent =
        parent.ok_or_else(|| format!("neither {XDG_CACHE_HOME} nor {HOME} is an absolute path"))?;
    let folder = parent.join("offld");
    match distrust(&folder, rustix::process::geteuid().as_raw()) {
        Some(why) => Err(why),
        None => Ok(folder),
    }
}

/// Why `user` should not use `folder`: others could put their code into linked programs. Links of
/// root could also be made to write elsewhere, so for root no other user may control any directory
/// on the path. With `sudo make`, HOME may be another user's.
fn distrust(folder: &Path, user: u32) -> Option<String> {
    let why = if user == 0 {
        problem_on_the_path(folder)
    } else {
        problem_of_folder(folder, user)
    };
    why.map(|why| format!("{why} (set {OFFLD_CACHE} to a directory)"))
}

fn problem_of_folder(folder: &Path, user: u32) -> Option<String> {
    let meta = std::fs::metadata(folder).ok()?;
    let why = if !meta.is_dir() {
        "is not a directory".to_owned()
    } else if meta.uid() != user {
        format!("belongs to {}", user_name(meta.uid()))
    } else if meta.mode() & 0o002 != 0 {
        "is writable by everyone".to_owned()
    } else {
        return None;
    };
    Some(format!("`{}` {why}", folder.display()))
}

/// The first directory on the path to `folder` that root does not control, with the reason. The
/// path counts as written and after following symbolic links.
fn problem_on_the_path(folder: &Path) -> Option<String> {
    let exists = folder.ancestors().find(|path| path.exists());
    let real = exists.and_then(|path| path.canonicalize().ok());
    let named = folder.ancestors().map(Path::to_owned);
    let mut way: Vec<PathBuf> = named
        .chain(
            real.iter()
                .flat_map(|real| real.ancestors())
                .map(Path::to_owned),
        )
        .collect();
    way.reverse();
    let why = way.iter().find_map(|path| {
        let meta = path.symlink_metadata().ok()?;
        let why = problem_for_root(meta.uid(), meta.mode(), meta.is_symlink())?;
        Some(format!(
            "`{}` {why}, but only root may control root's cache",
            path.display()
        ))
    });
    why.or_else(|| {
        (folder.exists() && !folder.is_dir())
            .then(|| format!("`{}` is not a directory", folder.display()))
    })
}

/// Why another user could change the target of a directory or symbolic link with this owner and
/// mode.
fn problem_for_root(owner: u32, mode: u32, is_link: bool) -> Option<String> {
    if owner != 0 {
        return Some(format!("belongs to {}", user_name(owner)));
    }
    // The mode of a symbolic link is meaningless.
    (!is_link && mode & 0o022 != 0).then(|| "is writable by others".to_owned())
}

/// Name and number of a user; the name only if `/etc/passwd` lists the user.
pub(super) fn user_name(user: u32) -> String {
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let number = user.to_string();
    let name = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == number).then(|| name.to_owned())
    });
    name.map_or_else(
        || format!("user {user}"),
        |name| format!("{name} (user {user})"),
    )
}

// The key that signs records and images of a shared cache (`OFFLD_CACHE_KEY`). Holders of the key
// can sign, and signed entries are trusted, so its file must not be readable by other users. If
// the variable is set, a link fails without a valid key.

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
    pub fn of_environment() -> Result<Option<Self>> {
        let Some(file) = environment::get(OFFLD_CACHE_KEY) else {
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
    use std::ffi::OsString;
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    use super::*;

    /// Returns the directory with this option in this environment, or why there is none.
    fn setting(option: Option<&str>, environment: &[(&str, &str)]) -> Result<PathBuf, String> {
        let env = |name: &str| {
            environment
                .iter()
                .find(|(known, _)| *known == name)
                .map(|(_, value)| OsString::from(value))
        };
        let option = option.map(|value| Named::new("--wrapper-cache", value));
        let folder = option.or_else(|| named_by_environment(&env));
        let setting = resolve_in(folder, &env);
        assert_eq!(setting.root.is_none(), setting.why_off.is_some());
        setting.root.ok_or_else(|| setting.why_off.unwrap())
    }

    #[test]
    fn the_option_then_the_variable_then_the_home() {
        let home = ("HOME", "/home/nobody-here");
        assert_eq!(
            setting(None, &[home]),
            Ok("/home/nobody-here/.cache/offld".into())
        );
        assert_eq!(
            setting(None, &[home, ("XDG_CACHE_HOME", "/x")]),
            Ok("/x/offld".into())
        );
        assert_eq!(
            setting(None, &[home, ("XDG_CACHE_HOME", "x")]),
            Ok("/home/nobody-here/.cache/offld".into())
        );
        assert_eq!(
            setting(None, &[home, ("OFFLD_CACHE", "/c")]),
            Ok("/c".into())
        );
        assert_eq!(
            setting(Some("/o"), &[home, ("OFFLD_CACHE", "/c")]),
            Ok("/o".into())
        );
        assert_eq!(
            setting(Some("./off"), &[]),
            Ok(std::env::current_dir().unwrap().join("off"))
        );
        for on in ["on", "YES", "1", "true"] {
            assert_eq!(
                setting(Some(on), &[home, ("OFFLD_CACHE", "off")]),
                Ok("/home/nobody-here/.cache/offld".into())
            );
        }
    }

    #[test]
    fn an_off_cache_has_a_reason() {
        let home = ("HOME", "/home/nobody-here");
        assert_eq!(
            setting(Some("off"), &[home]),
            Err("--wrapper-cache=off".into())
        );
        for off in ["off", "OFF", "no", "0", "false"] {
            assert_eq!(
                setting(None, &[home, ("OFFLD_CACHE", off)]),
                Err(format!("OFFLD_CACHE={off}"))
            );
        }
        assert_eq!(
            setting(Some(""), &[home]),
            Err("--wrapper-cache=: cannot make an empty path absolute".into())
        );
        assert_eq!(
            setting(None, &[]),
            Err("neither XDG_CACHE_HOME nor HOME is an absolute path".into())
        );
        assert_eq!(
            setting(None, &[home, ("OFFLD_CACHE_SIZE", "0")]),
            Err("OFFLD_CACHE_SIZE=0".into())
        );
        let file = std::env::current_exe().unwrap();
        for path in [file.clone(), file.join("below")] {
            let wrong =
                setting(None, &[home, ("OFFLD_CACHE", path.to_str().unwrap())]).unwrap_err();
            assert!(
                wrong.starts_with("OFFLD_CACHE: `/")
                    && wrong.ends_with("is not a directory, and cannot become one"),
                "{wrong}"
            );
        }
        let wrong = setting(None, &[home, ("OFFLD_CACHE_SIZE", "many")]).unwrap_err();
        assert!(
            wrong.starts_with("OFFLD_CACHE_SIZE: invalid size 'many'"),
            "{wrong}"
        );
    }

    #[test]
    fn a_directory_of_others_is_used_only_if_it_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("offld");
        std::fs::create_dir(&folder).unwrap();
        let owner = std::fs::metadata(&folder).unwrap().uid();
        let mode = |mode| {
            std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(mode)).unwrap()
        };
        mode(0o775);
        assert_eq!(problem_of_folder(&folder, owner), None);
        assert_eq!(
            setting(folder.to_str(), &[]),
            Ok(folder.clone()),
            "one that is named is taken"
        );
        mode(0o777);
        assert!(
            problem_of_folder(&folder, owner)
                .unwrap()
                .contains("is writable by everyone")
        );
        assert_eq!(setting(folder.to_str(), &[]), Ok(folder.clone()));
        mode(0o755);
        let why = distrust(&folder, owner + 1).unwrap();
        assert!(
            why.contains("belongs to ") && why.contains(&format!("user {owner}")),
            "{why}"
        );
        std::fs::remove_dir(&folder).unwrap();
        assert_eq!(problem_of_folder(&folder, owner), None, "it need not exist");
        std::fs::write(&folder, "").unwrap();
        assert!(
            problem_of_folder(&folder, owner)
                .unwrap()
                .contains("is not a directory")
        );
    }

    #[test]
    fn root_uses_only_directories_that_root_controls() {
        assert_eq!(problem_for_root(0, 0o40755, false), None);
        assert_eq!(problem_for_root(0, 0o120777, true), None);
        for (owner, mode) in [(0, 0o40775), (0, 0o41777), (0, 0o40757)] {
            assert_eq!(
                problem_for_root(owner, mode, false).as_deref(),
                Some("is writable by others"),
                "{mode:o}"
            );
        }
        assert_eq!(
            problem_for_root(4_000_000_000, 0o40700, false).as_deref(),
            Some("belongs to user 4000000000")
        );
        assert_eq!(
            problem_for_root(4_000_000_000, 0o120777, true).as_deref(),
            Some("belongs to user 4000000000")
        );
        assert_eq!(user_name(0), "root (user 0)");
        // Everyone can write to /tmp, so a missing directory in it is refused as well.
        let why = distrust(Path::new("/tmp/nowhere/offld"), 0).unwrap();
        assert!(
            why.starts_with("`/tmp` ") && why.contains("set OFFLD_CACHE to a directory"),
            "{why}"
        );
    }

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
