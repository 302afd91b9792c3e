//! Tests of outputs: none appears before all are complete.

mod copy;

use std::fs::Permissions;
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
