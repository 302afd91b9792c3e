//! Attribution of the bytes of files. `items` has every byte once, with everything that it belongs
//! to; `duplicates` finds repeated and uncompressed data; `budget` checks limits; `saved` stores
//! all sizes for a later comparison. `report` is the result as data, with the bytes added up by the
//! requested levels; `table` and `page` display it.

pub mod budget;
mod duplicates;
mod items;
pub mod page;
pub mod report;
mod saved;
pub mod table;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Result, bail};
use rayon::prelude::*;

use crate::contents::folders;
use crate::contents::layout::{Footprint, Names, Part, SizedImage};
use crate::contents::selection::Selection;
use crate::contents::{self, Reader};
pub(crate) use duplicates::Duplicates;
pub(crate) use items::Item;
pub use items::{Items, Level, pattern};
use offld_system::progress::Meter;
use offld_system::session::Session;
use offld_system::threads;
pub(crate) use report::{FileSize, ImageSize};
pub(crate) use saved::starts as is_saved;
pub use saved::{load, save};

/// The sizes of all files.
#[derive(Debug)]
pub struct Sizes {
    /// The files.
    pub files: Vec<FileSize>,
    /// Their images, in the order of the indices in items.
    pub images: Vec<ImageSize>,
    /// All bytes of the files.
    pub items: Items,
    /// Repeated data, and data that could be smaller.
    pub duplicates: Duplicates,
}

impl Sizes {
    /// The counted bytes of all files.
    pub(crate) fn size(&self) -> u64 {
        self.items.list.iter().map(|item| item.file).sum()
    }

    /// The bytes of the host.
    pub(crate) fn host(&self) -> u64 {
        let host = self
            .items
            .list
            .iter()
            .filter(|item| item.key(Level::Arch) == self.items.host);
        host.map(|item| item.file).sum()
    }

    /// The counted bytes of all files after decompression.
    pub(crate) fn inflated(&self) -> u64 {
        self.items.list.iter().map(|item| item.inflated).sum()
    }
}

/// Options of a measurement.
#[derive(Debug, Clone)]
pub struct Counted {
    /// The names of the items that bytes belong to.
    pub names: Arc<Names>,
    /// Limit of the decompressed data of a file, in bytes.
    pub max_unpacked: u64,
    /// The files and members to count.
    pub selection: Arc<Selection>,
    /// Whether files of which only parts without device code are selected are in the result.
    pub keep_empty: bool,
}

/// Counts the bytes of files, and of every file below directories. Errors in the files are in the
/// result.
///
/// # Errors
/// A signal arrived, or a file is no longer readable during the search for duplicates.
pub fn measure(paths: &[PathBuf], counted: &Counted, session: &Session) -> Result<Sizes> {
    let Counted {
        names,
        max_unpacked,
        selection,
        keep_empty,
    } = counted;
    let (mut found, faults) = folders::selected(paths, selection, session);
    folders::with_packs(&mut found);
    let (max_unpacked, selection) = (*max_unpacked, Arc::clone(selection));
    let options = contents::Options {
        sizes: Some(Arc::clone(names)),
        max_unpacked,
        selection,
        ..contents::Options::default()
    };
    let meter = Meter::new(
        session.shell.is_terminal(),
        found.iter().map(|found| found.size).sum(),
    );
    let reader = Reader::new(options, session).shown_by(&meter);
    let mut all: Vec<(FileSize, Footprint)> = threads::in_parallel(|| {
        let each = found.par_iter().filter_map(|found| {
            let (file, footprint) = measure_file(&reader, &found.path);
            // Files without device code in a directory are not reported.
            let named = found.named
                && !footprint
                    .leaves
                    .iter()
                    .any(|leaf| leaf.label.part == Part::LeftOut);
            (named || *keep_empty || !footprint.images.is_empty() || !file.errors.is_empty())
                .then_some((file, footprint))
        });
        each.collect()
    });
    session.signals.check()?;
    all.extend(
        faults
            .into_iter()
            .map(|(path, error)| (unreadable(&path, &error), Footprint::default())),
    );
    let (files, mut footprints): (Vec<FileSize>, Vec<Footprint>) = all.into_iter().unzip();
    let items = Items::of(&files, &mut footprints, names);
    let images = images(&files, &footprints, &items);
    let mut duplicates = duplicates::find(&files, &footprints, &items, names)?;
    duplicates.served = duplicates::find_served(&images);
    Ok(Sizes {
        files,
        images,
        items,
        duplicates,
    })
}

fn images(files: &[FileSize], footprints: &[Footprint], items: &Items) -> Vec<ImageSize> {
    let text = |name| items.text(name).to_string();
    let of_file = |(file, footprint): (&FileSize, &Footprint)| {
        let image = |image: &SizedImage| ImageSize {
            input: file.file.clone(),
            place: image.place.clone(),
            kind: text(image.kind),
            triple: text(image.triple),
            target: text(image.target),
            arch: text(image.arch),
            format: image.format.to_owned(),
            file: 0,
            inflated: image.size,
        };
        footprint.images.iter().map(image).collect::<Vec<_>>()
    };
    let mut images: Vec<ImageSize> = files.iter().zip(footprints).flat_map(of_file).collect();
    for item in &items.list {
        if let Some(image) = item.image.place().and_then(|image| images.get_mut(image)) {
            image.file += item.file;
        }
    }
    images
}

fn measure_file(reader: &Reader<'_>, path: &Path) -> (FileSize, Footprint) {
    match reader.footprint(path) {
        Ok((footprint, kind, errors)) => {
            let inflated = footprint.leaves.iter().map(|leaf| leaf.inflated).sum();
            let (file, size) = (path.display().to_string(), footprint.size);
            (
                FileSize {
                    file,
                    kind: kind.to_owned(),
                    size,
                    inflated,
                    errors,
                },
                footprint,
            )
        }
        Err(error) => (unreadable(path, &error), Footprint::default()),
    }
}

fn unreadable(path: &Path, error: &anyhow::Error) -> FileSize {
    let errors = vec![offload_formats::error::chain(error)];
    FileSize {
        file: path.display().to_string(),
        kind: "unreadable".to_owned(),
        size: 0,
        inflated: 0,
        errors,
    }
}

/// The measurement to compare with: of a file with device code, or from a saved file.
///
/// # Errors
/// The file cannot be read, or it could not be read completely when it was saved.
pub fn measure_old(path: &Path, counted: &Counted, session: &Session) -> Result<Sizes> {
    let old = match load(path, counted)? {
        Some(saved) => saved,
        None => measure(&[path.to_owned()], counted, session)?,
    };
    if let Some(error) = old.files.iter().flat_map(|file| &file.errors).next() {
        bail!("cannot read the --diff file: {error}");
    }
    Ok(old)
}
