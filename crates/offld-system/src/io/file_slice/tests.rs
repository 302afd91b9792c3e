//! Tests of pieces: they have the right bytes, wherever those are stored.

use super::*;
use crate::session::SessionOptions;
use crate::shell::Shell;

type Outcome = std::result::Result<(), Box<dyn std::error::Error>>;

fn read(piece: &FileSlice) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    piece.reader().read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[test]
fn parts_are_read_and_copied_and_have_offsets() -> Outcome {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("file");
    let all: Vec<u8> = (0..200_000u32)
        .map(|number| number as u8 ^ (number >> 8) as u8)
        .collect();
    std::fs::write(&path, &all)?;
    let session = Session::new(
        Arc::new(Shell::from_write("test", Box::new(io::sink()))),
        SessionOptions::default(),
    );
    let mut spool = Spool::new(&session);
    let first = spool.add(|out| Ok(out.write_all(b"before")?))?;
    assert!(
        spool
            .add(|out| {
                out.write_all(b"torn")?;
                anyhow::bail!("no")
            })
            .is_err()
    );
    let pieces = [
        (FileSlice::open(&path)?, true),
        (FileSlice::open_one_of_many(&path)?, true),
        (FileSlice::owned(all.clone()), false),
        (FileSlice::made(|out| Ok(out.write_all(&all)?))?, false),
        (spool.add(|out| Ok(out.write_all(&all)?))?, false),
    ];
    assert_eq!(first.bytes(), b"before");
    for (piece, of_a_file) in pieces {
        let part = piece.from(10).slice(5, 150_000).ok_or("not all there")?;
        assert_eq!(
            (part.bytes(), read(&part)?),
            (&all[15..150_015], all[15..150_015].to_vec())
        );
        assert_eq!(part.file_offset(1), of_a_file.then_some(16));
        assert!(part.is(&part.clone()) && !part.is(&piece));
        assert!(piece.slice(1, all.len() as u64).is_none() && piece.from(1 << 40).size() == 0);
        let mut outputs = crate::io::outputs::Outputs::new(&session);
        let mut out = outputs.create(&folder.path().join("out"))?;
        out.write_all(b"head")?;
        part.copy_to(&mut out)?;
        outputs.commit()?;
        assert_eq!(
            std::fs::read(folder.path().join("out"))?[4..],
            all[15..150_015]
        );
    }
    Ok(())
}

#[test]
fn a_missing_file_is_named() {
    for open in [
        FileSlice::open,
        FileSlice::open_one_of_many,
        FileSlice::open_member,
    ] {
        let error = |path: &str| {
            open(Path::new(path))
                .map(drop)
                .map_err(|error| error.to_string())
        };
        assert_eq!(
            error("/no/file"),
            Err("'/no/file': No such file or directory".to_owned())
        );
        assert_eq!(error("/"), Err("'/': Is a directory".to_owned()));
    }
}

#[test]
fn files_without_a_size_are_read_to_their_end() -> Outcome {
    for open in [FileSlice::open, FileSlice::open_one_of_many] {
        let words = open(Path::new("/proc/self/cmdline"))?;
        assert_eq!(words.bytes(), std::fs::read("/proc/self/cmdline")?);
        let (from, mut to) = std::io::pipe()?;
        let writer = std::thread::spawn(move || to.write_all(&vec![7; 300_000]));
        let piped = open(Path::new(&format!(
            "/proc/self/fd/{}",
            std::os::fd::AsRawFd::as_raw_fd(&from)
        )));
        drop(from);
        assert_eq!(piped?.bytes(), vec![7; 300_000]);
        assert!(writer.join().is_ok_and(|written| written.is_ok()));
        assert!(words.is_made() && words.file_offset(0).is_none());
        assert_eq!(open(Path::new("/dev/null"))?.size(), 0);
    }
    Ok(())
}

#[test]
fn members_must_be_regular_files() {
    for path in ["/dev/zero", "/dev/null"] {
        let error = FileSlice::open_member(Path::new(path))
            .err()
            .map(|error| error.to_string());
        assert_eq!(error, Some(format!("'{path}': not a regular file")));
    }
}
