//! Tests of ropes: the same bytes for every writer and every kind of part.

use super::*;
use crate::io::outputs::Outputs;
use crate::session::{Session, SessionOptions};
use crate::shell::Shell;

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn pattern(size: u64) -> Vec<u8> {
    (0..size)
        .map(|at| (at % 251) as u8 ^ (at >> 13) as u8)
        .collect()
}

fn session() -> Session {
    Session::new(
        std::sync::Arc::new(Shell::from_write("test", Box::new(io::sink()))),
        SessionOptions::default(),
    )
}

#[test]
fn writes_every_kind_of_part_in_every_way() -> Outcome {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("file");
    let bytes = pattern(2 * GRAIN);
    std::fs::write(&path, &bytes)?;
    let mut inner = Rope::from(b"inner".to_vec());
    inner.push_file(path.clone(), 10, 2 * GRAIN - 20);
    let mut all = Rope::from(b"head".to_vec());
    all.pad_to(4096);
    all.append(inner);
    all.push_file(path.clone(), 5, 0);
    all.push_piece(FileSlice::open(&path)?.from(7));
    all.push_piece(FileSlice::open_one_of_many(&path)?);
    all.push_piece(FileSlice::owned(b"owned".to_vec()));
    all.push_zeros(3 * GRAIN);
    all.push_bytes(b"tail".to_vec());
    all.push_zeros(9);
    all.pad_to(12);

    let image = usize::try_from(2 * GRAIN - 20)?;
    let mut wanted = b"head".to_vec();
    wanted.resize(4096, 0);
    for part in [
        &b"inner"[..],
        &bytes[10..][..image],
        &bytes[7..],
        &bytes,
        b"owned",
    ] {
        wanted.extend(part);
    }
    wanted.resize(wanted.len() + usize::try_from(3 * GRAIN)?, 0);
    wanted.extend(b"tail");
    wanted.resize(wanted.len() + 9, 0);
    assert_eq!((all.size(), all.files().count()), (wanted.len() as u64, 2));
    // The first large part begins at offset 10 of the file, and at 4101 of the rope.
    assert_eq!(all.best_offset(), GRAIN + 10 - 4101);

    assert!(all.read()? == wanted);
    let mut chunks = Vec::new();
    all.for_each_chunk(|chunk| chunks.write_all(chunk))?;
    assert!(chunks == wanted);
    let mut file = tempfile::tempfile()?;
    all.write_at(&mut file, 3)?;
    file.set_len(3 + all.size())?;
    let mut written = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut written)?;
    assert!(written[..3] == [0; 3] && written[3..] == wanted);
    let session = session();
    let mut outputs = Outputs::new(&session);
    let mut out = outputs.create(&folder.path().join("out"))?;
    out.write_all(b"before")?;
    all.copy_to(&mut out)?;
    out.write_all(b"after")?;
    outputs.commit()?;
    assert!(
        std::fs::read(folder.path().join("out"))? == [b"before", &wanted[..], b"after"].concat()
    );
    let mut spool = Spool::new(&session);
    assert!(all.into_piece(&mut spool)?.bytes() == wanted);
    Ok(())
}

#[test]
fn a_single_piece_is_not_copied() -> Outcome {
    let session = session();
    let mut spool = Spool::new(&session);
    let piece = FileSlice::owned(b"alone".to_vec());
    assert!(Rope::from(piece.clone()).into_piece(&mut spool)?.is(&piece));
    assert_eq!(Rope::default().into_piece(&mut spool)?.bytes(), b"");
    Ok(())
}

#[test]
fn errors_name_a_file_that_is_too_short() -> Outcome {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("file");
    std::fs::write(&path, "short")?;
    let mut rope = Rope::default();
    rope.push_file(path.clone(), 10, 500);
    let mut out = tempfile::tempfile()?;
    for error in [
        rope.write_to(&mut io::sink()).err(),
        rope.write_at(&mut out, 0).err(),
    ] {
        assert!(
            error
                .ok_or("no error")?
                .to_string()
                .ends_with("/file: 0 bytes, expected 500")
        );
    }
    std::fs::remove_file(&path)?;
    let error = rope.read().err().ok_or("no error")?;
    assert!(
        error.kind() == io::ErrorKind::NotFound
            && error.to_string().starts_with(&path.display().to_string()),
        "{error}"
    );
    assert!(Rope::of_file(path).is_err());
    Ok(())
}
