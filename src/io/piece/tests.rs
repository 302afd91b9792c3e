//! Pieces of files are the bytes that they stand for, wherever these are.

use super::*;
use crate::sys::session::SessionOptions;
use crate::sys::shell::Shell;

type Outcome = std::result::Result<(), Box<dyn std::error::Error>>;

fn read(piece: &Piece) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    piece.reader().read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[test]
fn parts_are_read_copied_and_told_by_their_place() -> Outcome {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("file");
    let all: Vec<u8> = (0..200_000u32).map(|number| number as u8 ^ (number >> 8) as u8).collect();
    std::fs::write(&path, &all)?;
    let session = Session::new(Arc::new(Shell::from_write("test", Box::new(io::sink()))), SessionOptions::default());
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
        (Piece::open(&path)?, true),
        (Piece::open_one_of_many(&path)?, true),
        (Piece::owned(all.clone()), false),
        (Piece::made(|out| Ok(out.write_all(&all)?))?, false),
        (spool.add(|out| Ok(out.write_all(&all)?))?, false),
    ];
    assert_eq!(first.bytes(), b"before");
    for (piece, of_a_file) in pieces {
        let part = piece.from(10).slice(5, 150_000).ok_or("not all there")?;
        assert_eq!((part.bytes(), read(&part)?), (&all[15..150_015], all[15..150_015].to_vec()));
        assert_eq!(part.file_offset(1), of_a_file.then_some(16));
        assert!(part.is(&part.clone()) && !part.is(&piece));
        assert!(piece.slice(1, all.len() as u64).is_none() && piece.from(1 << 40).size() == 0);
        let mut outputs = crate::io::outputs::Outputs::new(&session);
        let mut out = outputs.create(&folder.path().join("out"))?;
        out.write_all(b"head")?;
        part.copy_to(&mut out)?;
        outputs.commit()?;
        assert_eq!(std::fs::read(folder.path().join("out"))?[4..], all[15..150_015]);
    }
    Ok(())
}

#[test]
fn a_missing_file_is_named() {
    let told = |path: &str| Piece::open(Path::new(path)).map(|_| ()).map_err(|error| error.to_string());
    assert_eq!(told("/no/file"), Err("'/no/file': No such file or directory".to_owned()));
    assert_eq!(told("/"), Err("'/': Is a directory".to_owned()));
}
