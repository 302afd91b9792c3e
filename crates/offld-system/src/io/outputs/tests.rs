//! Tests of outputs: none appears before all are complete. Tests of copies: at any offset in either
//! file, by the kernel and through a buffer.

use std::fs::Permissions;
use std::io::{Read, SeekFrom};
use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;
use crate::session::SessionOptions;
use crate::shell::Shell;

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn session() -> Session {
    Session::new(
        Arc::new(Shell::from_write("test", Box::new(io::sink()))),
        SessionOptions::default(),
    )
}

fn names(folder: &Path) -> io::Result<Vec<String>> {
    let mut names: Vec<String> = fs::read_dir(folder)?
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    Ok(names)
}

#[test]
fn b21_all_outputs_or_none() -> Outcome {
    let folder = tempfile::tempdir()?;
    let path = |name: &str| folder.path().join(name);
    fs::write(path("old"), "old")?;
    for commit in [false, true] {
        let mut outputs = Outputs::new(&session());
        for name in ["new", "old"] {
            outputs.create(&path(name))?.write_all(b"written")?;
        }
        assert_eq!(
            (path("new").exists(), fs::read(path("old"))?),
            (false, b"old".to_vec())
        );
        if commit {
            outputs.commit()?;
        } else {
            drop(outputs);
            assert_eq!(names(folder.path())?, ["old"]);
        }
    }
    assert_eq!(names(folder.path())?, ["new", "old"]);
    assert_eq!(
        (fs::read(path("new"))?, fs::read(path("old"))?),
        (b"written".to_vec(), b"written".to_vec())
    );
    Ok(())
}

#[test]
fn preserves_modes_symlinks_and_devices() -> Outcome {
    let folder = tempfile::tempdir()?;
    let path = |name: &str| folder.path().join(name);
    fs::write(path("file"), "old")?;
    fs::write(path("plain"), "")?;
    fs::set_permissions(path("file"), Permissions::from_mode(0o751))?;
    symlink("file", path("link"))?;
    symlink("/dev/null", path("null"))?;
    let mut outputs = Outputs::new(&session());
    for name in ["link", "null", "new"] {
        outputs.create(&path(name))?.write_all(b"written")?;
    }
    assert!(
        outputs
            .create(folder.path())
            .is_err_and(|error| error.to_string().ends_with("': Is a directory"))
    );
    assert!(outputs.create(&path("no/file")).is_err_and(|error| {
        error
            .to_string()
            .ends_with("no/file': No such file or directory")
    }));
    outputs.commit()?;
    let mode = |name: &str| fs::metadata(path(name)).map(|meta| meta.permissions().mode() & 0o777);
    assert_eq!(
        (fs::read(path("file"))?, mode("file")?, mode("new")?),
        (b"written".to_vec(), 0o751, mode("plain")?)
    );
    assert!(
        fs::symlink_metadata(path("link"))?.is_symlink()
            && fs::symlink_metadata(path("null"))?.is_symlink()
    );
    Ok(())
}

#[test]
fn ranges_are_copied_and_gaps_are_zeros() -> Outcome {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("out");
    fs::write(folder.path().join("in"), b"0123456789")?;
    let from = File::open(folder.path().join("in"))?;
    let mut outputs = Outputs::new(&session());
    let mut out = outputs.create(&path)?;
    out.write_all(b"head")?;
    out.pad_to(8)?;
    out.copy_range(&from, 3, 4)?;
    out.write_all(b"tail")?;
    out.write_zeros(3)?;
    out.write_zeros(5000)?;
    out.write_all(b"end")?;
    assert!(out.pad_to(3).is_err());
    assert!(out.copy_range(&from, 8, 4).is_err());
    drop(out);
    outputs.commit()?;
    let written = fs::read(&path)?;
    assert!(
        written.starts_with(b"head\x00\x00\x00\x003456tail")
            && written[5018..].starts_with(b"\0end")
    );
    assert!(written[16..5019].iter().all(|byte| *byte == 0));
    Ok(())
}

fn pattern(size: u64) -> Vec<u8> {
    (0..size)
        .map(|at| (at % 251) as u8 ^ (at >> 13) as u8)
        .collect()
}

#[test]
fn copies_at_every_alignment() -> Outcome {
    let folder = tempfile::tempdir()?;
    let bytes = pattern(3 * GRAIN + 77);
    std::fs::write(folder.path().join("from"), &bytes)?;
    let from = File::open(folder.path().join("from"))?;
    for start in [0, 1, 4096, GRAIN - 1, GRAIN, GRAIN + 4096] {
        for (offset, len) in [
            (0, 0),
            (0, 5),
            (3, 2 * GRAIN),
            (4096, GRAIN),
            (0, 3 * GRAIN + 77),
        ] {
            let mut to = tempfile::tempfile_in(folder.path())?;
            to.seek(SeekFrom::Start(start))?;
            copy_range(&from, offset, &mut to, len, &|| Ok(()))?;
            assert_eq!(to.stream_position()?, start + len, "{start} {offset} {len}");
            let mut copied = Vec::new();
            to.seek(SeekFrom::Start(start))?;
            to.read_to_end(&mut copied)?;
            assert!(
                copied == bytes[offset as usize..(offset + len) as usize],
                "{start} {offset} {len}"
            );
            let mut written = Vec::new();
            copy_range_to_writer(&from, offset, len, &mut written)?;
            assert!(written == copied, "{offset} {len}");
        }
    }
    Ok(())
}

#[test]
fn a_short_source_and_a_stop_are_errors() -> Outcome {
    let mut from = tempfile::tempfile()?;
    from.write_all(&pattern(100))?;
    let mut to = tempfile::tempfile()?;
    assert_eq!(
        copy_range(&from, 0, &mut to, 101, &|| Ok(())).map_err(|error| error.kind()),
        Err(ErrorKind::UnexpectedEof)
    );
    let short = copy_range_to_writer(&from, 1, 100, &mut io::sink());
    assert_eq!(
        short.map_err(|error| error.to_string()),
        Err("the file was truncated while being read".to_owned())
    );
    let stopped = copy_range(&from, 0, &mut to, 100, &|| Err(io::Error::other("stopped")));
    assert_eq!(
        stopped.map_err(|error| error.to_string()),
        Err("stopped".to_owned())
    );
    Ok(())
}

#[test]
fn copies_files_that_the_kernel_does_not_copy() -> Outcome {
    // A file below /proc has size 0, so copy_file_range copies nothing.
    let from = File::open("/proc/self/cmdline")?;
    let mut to = tempfile::tempfile()?;
    copy_range(&from, 0, &mut to, 3, &|| Ok(()))?;
    assert_eq!(to.metadata()?.len(), 3);
    Ok(())
}
