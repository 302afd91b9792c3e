//! Tests of copies: at any offset in either file, by the kernel and through a buffer.

use std::io::{Read, SeekFrom};

use crate::io::outputs::*;

type Outcome = Result<(), Box<dyn std::error::Error>>;

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
