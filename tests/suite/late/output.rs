//! The output file of a late link: for every kind of existing file, each linker treats it as in a
//! link that is not late.

use std::fs::{self, Permissions};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use libtest_mimic::{Failed, Trial};

use super::LINKERS;
use crate::kit::Image;
use crate::support::{
    Outcome, Work, ensure, expect_equal, expect_in, host_linker, missing, output, passed, run,
    spawned, with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    let of_linker = |linker: &'static str| {
        [
            with_llvm(
                &format!("late::output::{linker}_as_in_other_links"),
                move || states(linker),
            ),
            with_llvm(
                &format!("late::output::{linker}_a_program_that_runs"),
                move || running(linker),
            ),
        ]
    };
    LINKERS.into_iter().flat_map(of_linker).collect()
}

/// The state of `out` before a link: its name, and a function that creates it.
type State = (&'static str, fn(&Path) -> std::io::Result<()>);

/// `in.o` is an input of the link.
const STATES: [State; 19] = [
    ("nothing", |_| Ok(())),
    ("a file", |at| old(&at.join("out"), 0o644)),
    ("a private file", |at| old(&at.join("out"), 0o600)),
    ("a program with the set-user-ID bit", |at| {
        old(&at.join("out"), 0o4755)
    }),
    ("a file without permissions", |at| old(&at.join("out"), 0)),
    ("an empty file", |at| empty(&at.join("out"))),
    ("a hard link", |at| {
        old(&at.join("real"), 0o644).and_then(|()| fs::hard_link(at.join("real"), at.join("out")))
    }),
    ("a symlink", |at| {
        old(&at.join("real"), 0o644).and_then(|()| symlink("real", at.join("out")))
    }),
    ("a symlink to another directory", |at| {
        fs::create_dir(at.join("other"))?;
        old(&at.join("other/real"), 0o755)?;
        symlink("other/real", at.join("out"))
    }),
    ("a symlink to an empty file", |at| {
        empty(&at.join("real")).and_then(|()| symlink("real", at.join("out")))
    }),
    ("a symlink to a file without permissions", |at| {
        old(&at.join("real"), 0).and_then(|()| symlink("real", at.join("out")))
    }),
    ("a broken symlink", |at| symlink("real", at.join("out"))),
    ("a broken symlink to no directory", |at| {
        symlink("nowhere/real", at.join("out"))
    }),
    ("a symlink to itself", |at| symlink("out", at.join("out"))),
    ("a directory", |at| fs::create_dir(at.join("out"))),
    ("a symlink to a directory", |at| {
        fs::create_dir(at.join("real")).and_then(|()| symlink("real", at.join("out")))
    }),
    ("a symlink to a device", |at| {
        symlink("/dev/null", at.join("out"))
    }),
    ("an input", |at| symlink("in.o", at.join("out"))),
    ("another name of an input", |at| {
        fs::hard_link(at.join("in.o"), at.join("out"))
    }),
];

fn old(path: &Path, mode: u32) -> std::io::Result<()> {
    fs::write(path, "old")?;
    fs::set_permissions(path, Permissions::from_mode(mode))
}

fn empty(path: &Path) -> std::io::Result<()> {
    fs::write(path, "")?;
    fs::set_permissions(path, Permissions::from_mode(0o640))
}

/// The link of `in.o` to `out` in the directory `at`, late or not.
fn link(work: &Work, linker: &Path, at: &Path, late: &str, out: &str) -> Command {
    let mut link = work.wrapper(["-shared", "--wrapper-verbose", "-o", out, "in.o"]);
    link.arg(format!("--offld-linker={}", linker.display()))
        .current_dir(at)
        .env("OFFLD_LATE_IMAGES", late);
    link
}

/// A description of the file at a path: type, mode, links.
fn described(path: &Path) -> String {
    let Ok(meta) = fs::symlink_metadata(path) else {
        return "nothing".to_owned();
    };
    let kind = meta.file_type();
    if kind.is_symlink() {
        return format!(
            "a symlink to {}",
            fs::read_link(path).unwrap_or_default().display()
        );
    }
    if !kind.is_file() {
        return format!(
            "directory {}, device {}",
            kind.is_dir(),
            kind.is_char_device()
        );
    }
    let contents = match fs::read(path) {
        Ok(bytes) if bytes == b"old" => "old",
        Ok(bytes) if bytes.starts_with(b"\x7fELF") => "ELF",
        Ok(_) => "other",
        Err(_) => "unreadable",
    };
    format!("{contents}, mode {:o}, {} links", meta.mode(), meta.nlink())
}

/// The sorted names in a directory, once the old output is gone: wild renames it to
/// `NAME.delete` and removes it in the background, after the command has ended. Until then, the
/// number of links of its other names is too high. Sometimes wild never removes it, such as a
/// directory.
fn settled_names(at: &Path) -> std::io::Result<Vec<String>> {
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        let mut names = fs::read_dir(at)?
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect::<std::io::Result<Vec<_>>>()?;
        names.sort();
        let settled = !names.iter().any(|name| name.ends_with(".delete"));
        if settled || Instant::now() > deadline {
            return Ok(names);
        }
        thread::sleep(Duration::from_millis(5));
    }
}

fn states(linker: &'static str) -> Outcome {
    let work = Work::new();
    let Some(program) = host_linker(linker) else {
        return missing(linker);
    };
    work.fat("in.o", &[Image::amd("gfx90a", "A")])?;
    let mut late_ones = 0;
    let itself: [(State, &str); 1] = [(("the input itself", |_| Ok(())), "in.o")];
    let states = STATES.map(|state| (state, "out"));
    for (number, ((name, make), out)) in states.into_iter().chain(itself).enumerate() {
        let [by_linker, late] = ["off", "on"].map(|late| {
            let at = work.path().join(format!("{number}-{late}"));
            fs::create_dir(&at)?;
            fs::copy(work.path().join("in.o"), at.join("in.o"))?;
            make(&at)?;
            let ended = output(&mut link(&work, &program, &at, late, out))?;
            late_ones += usize::from(String::from_utf8_lossy(&ended.stderr).contains("/.offld-"));
            let mut names = settled_names(&at)?;
            names.retain(|name| !name.ends_with(".delete"));
            let found = ["out", "real", "other/real", "in.o"]
                .map(|file| format!("{file}: {}", described(&at.join(file))))
                .map(|text| match text.split_once(" links") {
                    // A leftover of wild is another link of the old output.
                    Some((text, _)) if linker == "wild" => text
                        .trim_end_matches(|last: char| last.is_ascii_digit())
                        .to_owned(),
                    _ => text,
                });
            Ok::<_, Failed>(format!(
                "{}: {}\n{}",
                ended.status.success(),
                names.join(" "),
                found.join("\n")
            ))
        });
        expect_equal(&format!("{name} by {linker}, late"), &by_linker?, &late?)?;
    }
    ensure(late_ones >= 8, || {
        format!("only {late_ones} links were late")
    })?;
    passed()
}

fn running(linker: &'static str) -> Outcome {
    let work = Work::new();
    let Some(linker) = host_linker(linker) else {
        return missing(linker);
    };
    work.fat("in.o", &[Image::amd("gfx90a", "A")])?;
    for name in ["program", "symlink"] {
        fs::copy("/bin/sleep", work.path().join("program"))?;
        let _ = symlink("program", work.path().join("symlink"));
        let mut process = spawned(
            Command::new(work.path().join("program"))
                .arg("60")
                .stdout(Stdio::null()),
        )?;
        let ended = run(&mut link(&work, &linker, work.path(), "on", name));
        process.kill()?;
        process.wait()?;
        ended?;
        let bytes = fs::read(work.path().join(name))?;
        ensure(
            bytes.starts_with(b"\x7fELF") && bytes != fs::read("/bin/sleep")?,
            || format!("{name} is still the old program"),
        )?;
        expect_in(&work.run("readelf", ["-SW", name])?, ".llvm.offloading")?;
    }
    passed()
}
