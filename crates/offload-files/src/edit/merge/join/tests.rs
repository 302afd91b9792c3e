//! Tests with containers that no installed compiler writes: fatbinaries, and rows of several
//! containers.

use std::path::PathBuf;
use std::sync::Arc;

use super::*;
use crate::contents::report::FileReport;
use crate::contents::{Options, Reader};
use crate::edit::merge::{check_images, name_kinds};
use offld_system::io::file_slice::FileSlice;
use offld_system::session::{Session, SessionOptions};
use offld_system::shell::Shell;
use offload_formats::fatbin::{MAGIC, read_all};
use offload_formats::model::ImageKind;
use offload_formats::offload_binary;

/// A fatbinary with PTX text for these architectures.
fn fatbinary(entries: &[(u8, &str)]) -> Vec<u8> {
    let mut body = Vec::new();
    for (processor, text) in entries {
        let size = text.len().next_multiple_of(8);
        let mut header = [0; 64];
        (header[0], header[4], header[8], header[28]) = (1, 64, size as u8, *processor);
        header[2] = 1;
        body.extend(header);
        body.extend(text.bytes());
        body.resize(body.len().next_multiple_of(8), 0);
    }
    [
        &MAGIC[..],
        &1_u16.to_le_bytes(),
        &16_u16.to_le_bytes(),
        &(body.len() as u64).to_le_bytes(),
        &body,
    ]
    .concat()
}

/// Merges the files, opened and read like the command does.
fn merged(files: &[Vec<u8>]) -> Result<Vec<u8>> {
    let folder = tempfile::tempdir().unwrap();
    let session = Session::new(
        Arc::new(Shell::from_write("test", Box::new(std::io::sink()))),
        SessionOptions::default(),
    );
    let reader = Reader::new(
        Options {
            kernels: true,
            registered: true,
            ..Options::default()
        },
        &session,
    );
    let opened: Vec<(PathBuf, FileSlice)> = files
        .iter()
        .enumerate()
        .map(|(number, bytes)| {
            let path = folder.path().join(number.to_string());
            std::fs::write(&path, bytes).unwrap();
            let piece = FileSlice::open(&path).unwrap();
            (path, piece)
        })
        .collect();
    let mut reports: Vec<FileReport> = opened
        .iter()
        .map(|(path, piece)| reader.opened(path, piece.clone()))
        .collect();
    reports.iter_mut().for_each(name_kinds);
    let builds: Vec<Build<'_>> = opened
        .iter()
        .zip(&reports)
        .map(|((path, piece), report)| Build {
            path,
            piece,
            report,
        })
        .collect();
    let units = check_images(&reports)?;
    let joined = join(&builds, &units, &mut Spool::new(&session))?;
    joined.map_or(Ok(files[0].clone()), |rope| Ok(rope.read()?))
}

#[test]
fn fatbinaries_get_the_entries_of_their_counterparts() {
    let (one, other) = (".version 8.0\n.target sm_80", ".version 8.0\n.target sm_90");
    let all = merged(&[fatbinary(&[(80, one)]), fatbinary(&[(90, other)])]).unwrap();
    let read = read_all(&all).unwrap();
    let [only] = &read[..] else {
        panic!("{} fatbinaries", read.len())
    };
    let mut found: Vec<(&str, &[u8])> = only
        .entries
        .iter()
        .map(|entry| (entry.arch.as_str(), &entry.stored[..one.len()]))
        .collect();
    found.sort();
    assert_eq!(
        found,
        [("sm_80", one.as_bytes()), ("sm_90", other.as_bytes())]
    );
    // An entry that the first build has is not added twice.
    assert_eq!(
        merged(&[all.clone(), fatbinary(&[(90, other)])]).unwrap(),
        all
    );
    let message = merged(&[fatbinary(&[(80, one)]), fatbinary(&[(80, other)])])
        .unwrap_err()
        .to_string();
    assert!(
        message.contains("sm_80") && message.ends_with("a runtime would take only one of them"),
        "{message}"
    );
}

#[test]
fn each_container_of_a_row_has_its_counterpart() {
    let text = ".version 8.0\n.target sm_80 ";
    let row = |processor| {
        [
            fatbinary(&[(processor, text)]),
            fatbinary(&[(processor, text)]),
        ]
        .concat()
    };
    let all = merged(&[row(80), row(90)]).unwrap();
    let count: Vec<usize> = read_all(&all)
        .unwrap()
        .iter()
        .map(|one| one.entries.len())
        .collect();
    assert_eq!(count, [2, 2]);
    let message = merged(&[row(80), fatbinary(&[(90, text)])])
        .unwrap_err()
        .to_string();
    assert!(message.contains("has device code for CUDA"), "{message}");
}

#[test]
fn offload_binaries_lose_duplicate_images() {
    let binary = |images: &[(&str, &str)]| {
        let one = |(target, bytes): &(&str, &str)| {
            let strings = [("triple", "amdgcn-amd-amdhsa"), ("arch", *target)];
            offload_binary::write(ImageKind::Object, 1, 0, &strings, bytes.as_bytes())
        };
        images.iter().flat_map(one).collect::<Vec<u8>>()
    };
    let all = merged(&[
        binary(&[("gfx906", "a"), ("gfx90a", "b")]),
        binary(&[("gfx906", "a"), ("gfx908", "c")]),
    ])
    .unwrap();
    let read = offload_binary::read_all(&all).unwrap();
    let found: Vec<(String, &[u8])> = read
        .iter()
        .map(|image| (image.arch().to_string(), &*image.image))
        .collect();
    assert_eq!(
        found,
        [
            ("gfx90a".to_owned(), &b"b"[..]),
            ("gfx908".to_owned(), b"c"),
            ("gfx906".to_owned(), b"a")
        ]
    );
}
