//! Whatever stands where, and whoever copies: the bytes are the same.

use super::*;

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn pattern(size: u64) -> Vec<u8> {
    (0..size).map(|at| (at % 251) as u8 ^ (at >> 13) as u8).collect()
}

#[test]
fn every_place_in_both_files() -> Outcome {
    let folder = tempfile::tempdir()?;
    let bytes = pattern(3 * GRAIN + 77);
    std::fs::write(folder.path().join("from"), &bytes)?;
    let from = File::open(folder.path().join("from"))?;
    for start in [0, 1, 4096, GRAIN - 1, GRAIN, GRAIN + 4096] {
        for (offset, len) in [(0, 0), (0, 5), (3, 2 * GRAIN), (4096, GRAIN), (0, 3 * GRAIN + 77)] {
            let mut to = tempfile::tempfile_in(folder.path())?;
            to.seek(SeekFrom::Start(start))?;
            range(&from, offset, &mut to, len, &|| Ok(()))?;
            assert_eq!(to.stream_position()?, start + len, "{start} {offset} {len}");
            let mut copied = Vec::new();
            to.seek(SeekFrom::Start(start))?;
            to.read_to_end(&mut copied)?;
            assert!(copied == bytes[offset as usize..(offset + len) as usize], "{start} {offset} {len}");
        }
    }
    Ok(())
}

#[test]
fn an_end_before_its_time_is_an_error_and_so_is_a_stop() -> Outcome {
    let mut from = tempfile::tempfile()?;
    from.write_all(&pattern(100))?;
    let mut to = tempfile::tempfile()?;
    assert_eq!(range(&from, 0, &mut to, 101, &|| Ok(())).map_err(|error| error.kind()), Err(io::ErrorKind::UnexpectedEof));
    let stopped = range(&from, 0, &mut to, 100, &|| Err(io::Error::other("stopped")));
    assert_eq!(stopped.map_err(|error| error.to_string()), Err("stopped".to_owned()));
    Ok(())
}

#[test]
fn files_where_the_system_does_not_copy() -> Outcome {
    // A file below /proc has no size, and no call copies it.
    let from = File::open("/proc/self/cmdline")?;
    let mut to = tempfile::tempfile()?;
    range(&from, 0, &mut to, 3, &|| Ok(()))?;
    assert_eq!(to.metadata()?.len(), 3);
    Ok(())
}

#[test]
fn parts_with_zeros_between() -> Outcome {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("file");
    std::fs::write(&path, pattern(2 * GRAIN))?;
    let mut inner = Composed::default();
    inner.push_bytes(b"inner".to_vec());
    inner.push_file(path.clone(), 10, 2 * GRAIN - 20);
    let mut all = Composed::default();
    all.push_bytes(b"head".to_vec());
    all.pad_to(4096);
    all.append(inner);
    all.push_file(path.clone(), 5, 0);
    all.pad_to(2 * GRAIN + 5000);
    assert_eq!((all.size(), all.files().count()), (2 * GRAIN + 5000, 2));
    // The file's byte 10 comes at 4101.
    assert_eq!(all.best_offset(), GRAIN + 10 - 4101);

    let mut wanted = vec![0; usize::try_from(2 * GRAIN + 5000)?];
    wanted[..4].copy_from_slice(b"head");
    wanted[4096..4101].copy_from_slice(b"inner");
    wanted[4101..][..usize::try_from(2 * GRAIN - 20)?]
        .copy_from_slice(&pattern(2 * GRAIN)[10..][..usize::try_from(2 * GRAIN - 20)?]);
    let mut streamed = Vec::new();
    all.write_to(&mut streamed)?;
    assert!(streamed == wanted);
    let mut file = tempfile::tempfile()?;
    all.write_at(&mut file, 3)?;
    file.set_len(3 + all.size())?;
    let mut written = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut written)?;
    assert!(written[..3] == [0; 3] && written[3..] == wanted);

    std::fs::write(&path, "short")?;
    for error in [all.write_to(&mut io::sink()).err(), all.write_at(&mut file, 0).err()] {
        assert!(error.ok_or("no error")?.to_string().ends_with("file: 0 bytes, where 131052 were expected"));
    }
    Ok(())
}
