//! Location and size limit of the cache: from the command line, else the environment, else in the
//! user's own cache directory. Cached data becomes part of programs. So the default directory is
//! used only if it belongs to the user and others cannot write to it. For root, the same must hold
//! for all of its parent directories.

use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::args::settings::{CacheOptions, Env, LinkSettings, Named};
use crate::args::values::parse_size;
use crate::sys::session::{HOME, OFFLD_CACHE, OFFLD_CACHE_SIZE, Session, XDG_CACHE_HOME};

/// Default size limit, in bytes: 5 GiB.
pub(crate) const DEFAULT_LIMIT: u64 = 5 << 30;
/// Values that turn the cache off, and values that mean the default directory. A directory with
/// such a name is written as `./off`.
const OFF: [&str; 4] = ["off", "no", "false", "0"];
const ON: [&str; 4] = ["on", "yes", "true", "1"];

/// Cache settings of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Setting {
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

/// Returns the settings of this process. Commands that are not links have no `options`: for them,
/// those of the environment apply.
///
/// Never fails: an invalid setting turns the cache off, and `why_off` has the reason.
pub(crate) fn resolve(options: Option<&CacheOptions>) -> Setting {
    let folder = options.map_or_else(
        || LinkSettings::of_environment(&Session::env).cache.folder,
        |options| options.folder.clone(),
    );
    resolve_in(folder, &Session::env)
}

/// Like [`resolve`]. `folder`: `--wrapper-cache`, or `OFFLD_CACHE`.
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

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::os::unix::fs::PermissionsExt;

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
        let folder = option.or_else(|| LinkSettings::of_environment(&env).cache.folder);
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
}
