//! A cache directory that others may write to, or that belongs to another user: no symlink leads
//! out of it, and only root uses root's cache.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use libtest_mimic::{Failed, Trial};

use crate::cache_keys::stale::{BOTH, Hunt};
use crate::support::{
    Outcome, Work, ensure, expect_equal, expect_in, expect_not_in, missing, offld, passed, run,
    run_failing, stderr_of, test, with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        test(
            "cache_store::collections_follow_no_link_out_of_the_cache",
            collections,
        ),
        with_llvm("cache_store::links_follow_no_link_out_of_the_cache", links),
        with_llvm(
            "cache_store::root_uses_the_default_cache_only_where_it_is_roots",
            roots_default,
        ),
        test(
            "cache_store::collecting_what_is_another_users_is_an_error_that_names_the_owner",
            names_owner,
        ),
        with_llvm(
            "cache_store::new_files_get_the_owner_of_a_folder_that_was_named",
            new_files,
        ),
        with_llvm(
            "cache_store::the_users_cache_folder_is_the_users_alone",
            users_folder,
        ),
    ]
}

/// The user and group `nobody` on every Linux system.
const NOBODY: u32 = 65534;
const NAME: &str = "0123456789abcdef0123456789abcdef";

fn is_root() -> Result<bool, Failed> {
    Ok(fs::metadata("/proc/self")?.uid() == 0)
}

fn command(work: &Work, words: &[&str]) -> Command {
    let mut command = work.command(offld());
    command.args(words);
    command
}

/// A directory with files that look like those of a cache, and that were not used for long.
fn theirs(work: &Work) -> Result<PathBuf, Failed> {
    for name in [
        format!("theirs/{NAME}"),
        "theirs/stats".to_owned(),
        format!("theirs/b/01/{NAME}"),
    ] {
        let file = work.file(&name, "theirs");
        File::open(file)?.set_modified(SystemTime::UNIX_EPOCH)?;
    }
    Ok(work.path().join("theirs"))
}

fn unharmed(folder: &Path) -> Result<(), Failed> {
    for name in [NAME.to_owned(), "stats".to_owned(), format!("b/01/{NAME}")] {
        expect_equal(
            &name,
            "theirs",
            &fs::read_to_string(folder.join(&name)).unwrap_or_else(|error| error.to_string()),
        )?;
    }
    expect_equal("files", "3", &fs::read_dir(folder)?.count().to_string())
}

fn collections() -> Outcome {
    // The linked directory: one hash prefix, all entries, temporary files, an earlier version's
    // cache, or the whole cache.
    for link in [
        "v3/b/01", "v3/b", "v3/r", "v3/tmp", "v1", "v2", "v2/b/01", "v3",
    ] {
        for words in [&["cache", "gc", "--max-size=0"][..], &["cache", "clear"]] {
            let work = Work::new();
            let theirs = theirs(&work)?;
            let place = work.path().join("cache").join(link);
            fs::create_dir_all(place.parent().ok_or("no folder")?)?;
            symlink(&theirs, &place)?;
            // Whether the command reports the problem does not matter here.
            let _ = command(&work, words).env("OFFLD_CACHE", "cache").output()?;
            unharmed(&theirs).map_err(|failed| {
                format!(
                    "{link}, {words:?}: {}",
                    failed.message().unwrap_or_default()
                )
            })?;
        }
    }
    passed()
}

fn links() -> Outcome {
    for link in [
        "v3",
        "v3/tmp",
        "v3/b",
        "v3/r",
        "v3/stats",
        "v3/lock",
        "CACHEDIR.TAG",
    ] {
        let Some(hunt) = Hunt::new(BOTH[0], &std::env::temp_dir())? else {
            return missing("ld.lld");
        };
        hunt.archive(1, "lib/libhelper.a")?;
        hunt.rest();
        let place = hunt.at("cache").join(link);
        fs::create_dir_all(place.parent().ok_or("no folder")?)?;
        let theirs = hunt.at("theirs");
        if link.contains("stats") || link.contains("lock") || link.contains("TAG") {
            fs::write(&theirs, "theirs")?;
        } else {
            fs::create_dir(&theirs)?;
        }
        symlink(&theirs, &place)?;
        let (first, _) = hunt.link(&["-Llib", "-lhelper"], &[], true)?;
        let (second, _) = hunt.link(&["-Llib", "-lhelper"], &[], true)?;
        ensure(first == second, || format!("{link}: another program"))?;
        if theirs.is_dir() {
            expect_equal(
                &format!("files by {link}"),
                "0",
                &fs::read_dir(&theirs)?.count().to_string(),
            )?;
        } else {
            expect_equal(
                &format!("the file by {link}"),
                "theirs",
                &fs::read_to_string(&theirs)?,
            )?;
        }
    }
    passed()
}

fn roots_default() -> Outcome {
    if !is_root()? {
        return missing("the rights of root");
    }
    let Some(hunt) = Hunt::new(BOTH[0], &std::env::temp_dir())? else {
        return missing("ld.lld");
    };
    hunt.archive(1, "lib/libhelper.a")?;
    hunt.rest();
    let own = Work::within(Path::new("/root"));
    let link = |home: &Path| -> Result<String, Failed> {
        let mut command = hunt.command(&["-Llib", "-lhelper"]);
        stderr_of(command.env("OFFLD_CACHE", "on").env("XDG_CACHE_HOME", home))
    };
    let messages = link(own.path())?;
    expect_not_in(&messages, "not cached")?;
    ensure(
        own.path().join("offld/v3").is_dir(),
        || "root's own cache is not used",
    )?;
    // Another user's home, a world-writable directory, and a home that does not exist yet.
    let home = own.path().join("home");
    fs::create_dir(&home)?;
    chown(&home, Some(NOBODY), Some(NOBODY))?;
    let open = own.path().join("open");
    fs::create_dir(&open)?;
    fs::set_permissions(&open, fs::Permissions::from_mode(0o1777))?;
    let led = own.path().join("led");
    symlink(&home, &led)?;
    for (home, why) in [
        (home.join(".cache"), "belongs to nobody (user 65534)"),
        (led, "belongs to nobody (user 65534)"),
        (open.join("cache"), "is writable by others"),
    ] {
        let messages = link(&home)?;
        expect_in(&messages, "device links are not cached: ")?;
        expect_in(&messages, why)?;
        ensure(!home.join("offld").exists(), || {
            format!("{} was made", home.display())
        })?;
    }
    passed()
}

fn names_owner() -> Outcome {
    if !is_root()? {
        return missing("the rights of root");
    }
    let home = Work::within(Path::new("/root"));
    chown(home.path(), Some(NOBODY), Some(NOBODY))?;
    let file = home.file(&format!("offld/v3/b/01/{NAME}"), "an image");
    for words in [&["cache", "gc", "--max-size=0"][..], &["cache", "clear"]] {
        let stderr = run_failing(
            command(&home, words)
                .env("OFFLD_CACHE", "on")
                .env("XDG_CACHE_HOME", home.path()),
        )?;
        expect_in(&stderr, "belongs to nobody (user 65534)")?;
        ensure(file.exists(), || "another user's cache was cleared")?;
    }
    // Root's own cache, in a world-writable directory.
    let open = Work::within(Path::new("/root"));
    fs::set_permissions(open.path(), fs::Permissions::from_mode(0o1777))?;
    let file = open.file(&format!("offld/v3/b/01/{NAME}"), "an image");
    for words in [&["cache", "gc", "--max-size=0"][..], &["cache", "clear"]] {
        let stderr = run_failing(
            command(&open, words)
                .env("OFFLD_CACHE", "on")
                .env("XDG_CACHE_HOME", open.path()),
        )?;
        for part in [
            open.path().display().to_string().as_str(),
            "is writable by others",
        ] {
            expect_in(&stderr, part)?;
        }
        ensure(
            file.exists(),
            || "a cache that others can write to was cleared",
        )?;
    }
    passed()
}

fn new_files() -> Outcome {
    if !is_root()? {
        return missing("the rights of root");
    }
    let Some(hunt) = Hunt::new(BOTH[0], &std::env::temp_dir())? else {
        return missing("ld.lld");
    };
    hunt.archive(1, "lib/libhelper.a")?;
    hunt.rest();
    let cache = hunt.at("cache");
    fs::create_dir(&cache)?;
    chown(&cache, Some(NOBODY), Some(NOBODY))?;
    let (first, _) = hunt.link(&["-Llib", "-lhelper"], &[], true)?;
    let (second, messages) = hunt.link(&["-Llib", "-lhelper"], &[], true)?;
    expect_in(
        &messages,
        "device link for x86_64-pc-linux-gnu: found in the cache",
    )?;
    ensure(first == second, || "another program")?;
    let mut waiting = vec![cache.clone()];
    let mut files = 0;
    while let Some(path) = waiting.pop() {
        let meta = path.symlink_metadata()?;
        expect_equal(
            &path.display().to_string(),
            "65534 65534",
            &format!("{} {}", meta.uid(), meta.gid()),
        )?;
        if meta.is_dir() {
            waiting.extend(fs::read_dir(&path)?.flatten().map(|entry| entry.path()));
        } else {
            // With a second link, the owner could change a file after root has checked it.
            expect_equal(
                &format!("names of {}", path.display()),
                "1",
                &meta.nlink().to_string(),
            )?;
            files += 1;
        }
    }
    ensure(files > 4, || format!("only {files} files"))?;
    run(command(&hunt.work, &["cache", "gc", "--max-size=4K"]).env("OFFLD_CACHE", &cache))?;
    passed()
}

/// `command` with a umask that only denies others the right to write.
fn with_umask(command: &Command) -> Command {
    let mut all = Command::new("sh");
    all.args(["-c", "umask 002; exec \"$@\"", "sh"])
        .arg(command.get_program())
        .args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => all.env(name, value),
            None => all.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        all.current_dir(folder);
    }
    all
}

/// The XDG Base Directory Specification requires mode 0700 for new directories. New parents of an
/// explicitly set cache directory get the usual mode.
fn users_folder() -> Outcome {
    let Some(hunt) = Hunt::new(BOTH[0], &std::env::temp_dir())? else {
        return missing("ld.lld");
    };
    hunt.archive(1, "lib/libhelper.a")?;
    hunt.rest();
    let own = Work::within(&if is_root()? {
        PathBuf::from("/root")
    } else {
        std::env::temp_dir()
    });
    let mode = |name: &str| -> Result<String, Failed> {
        Ok(format!(
            "{:o}",
            fs::metadata(own.path().join(name))?.permissions().mode() & 0o7777
        ))
    };
    let mut link = hunt.command(&["-Llib", "-lhelper"]);
    run(&mut with_umask(
        link.env("OFFLD_CACHE", "on")
            .env_remove("XDG_CACHE_HOME")
            .env("HOME", own.path()),
    ))?;
    ensure(
        own.path().join(".cache/offld/v3").is_dir(),
        || "the default cache is not used",
    )?;
    expect_equal("~/.cache", "700", &mode(".cache")?)?;
    let xdg = own.path().join("by/xdg");
    run(&mut with_umask(link.env("XDG_CACHE_HOME", xdg)))?;
    expect_equal("XDG_CACHE_HOME", "700", &mode("by/xdg")?)?;
    run(&mut with_umask(
        link.env("OFFLD_CACHE", own.path().join("named/cache")),
    ))?;
    expect_equal(
        "the folder around one that was named",
        "775",
        &mode("named")?,
    )?;
    expect_equal("one that was named", "775", &mode("named/cache")?)?;
    // Existing directories keep their mode.
    fs::set_permissions(own.path().join(".cache"), fs::Permissions::from_mode(0o755))?;
    fs::remove_dir_all(own.path().join(".cache/offld"))?;
    run(&mut with_umask(
        link.env("OFFLD_CACHE", "on").env_remove("XDG_CACHE_HOME"),
    ))?;
    expect_equal("~/.cache that is there", "755", &mode(".cache")?)?;
    passed()
}
