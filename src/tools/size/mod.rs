//! Where the bytes of files are: `items` has every byte once, by what it belongs to; `rows` adds
//! them up as one wants to see them; `duplicates` finds what is there twice or for nothing;
//! `budget` compares with limits; `saved` keeps it all for a later comparison. `report` is the
//! result as data; `table`, `markdown` and `html` (with `page`) show it.

pub(crate) mod budget;
mod duplicates;
pub(crate) mod html;
mod items;
pub(crate) mod markdown;
mod page;
#[cfg(test)]
#[path = "page/tests.rs"]
mod page_tests;
pub mod report;
pub(crate) mod rows;
mod saved;
mod served;
pub(crate) mod table;
mod template;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Result, bail};
use rayon::prelude::*;

use crate::contents::layout::{Footprint, Names, Part, SizedImage};
use crate::contents::selection::Selection;
use crate::contents::{self, Reader, folders};
use crate::sys::progress::Meter;
use crate::sys::session::Session;
use crate::sys::threads;

pub(crate) use duplicates::Duplicates;
pub(crate) use items::{Items, Level, pattern};
pub(crate) use report::{FileSize, ImageSize};
pub(crate) use saved::{load, save};

/// What was found in all files.
#[derive(Debug)]
pub(crate) struct Sizes {
    /// The files.
    pub files: Vec<FileSize>,
    /// Their images, in the order of the numbers in items.
    pub images: Vec<ImageSize>,
    /// All bytes of them.
    pub items: Items,
    /// What is there twice or for nothing.
    pub duplicates: Duplicates,
}

impl Sizes {
    /// The bytes of all files that are counted.
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

    /// The bytes of all files that are counted, inflated.
    pub(crate) fn inflated(&self) -> u64 {
        self.items.list.iter().map(|item| item.inflated).sum()
    }
}

/// What is counted of files.
#[derive(Debug, Clone)]
pub(crate) struct Counted {
    /// The names of what bytes belong to.
    pub names: Arc<Names>,
    /// How many bytes may come out of compressed data in a file.
    pub max_unpacked: u64,
    /// Which files and members are counted.
    pub selection: Arc<Selection>,
}

/// Counts the bytes of files, and of every file below folders, as `counted` says. Errors in them
/// are in the result.
///
/// # Errors
/// A signal; a file that cannot be read any more when its duplicates are looked for.
pub(crate) fn measure(paths: &[PathBuf], counted: &Counted, session: &Session) -> Result<Sizes> {
    let Counted {
        names,
        max_unpacked,
        selection,
    } = counted;
    let (found, faults) = folders::selected(paths, selection, session);
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
            let (file, footprint) = one(&reader, &found.path);
            // Of a folder, what holds no device code is none of our business.
            let named = found.named
                && !footprint
                    .leaves
                    .iter()
                    .any(|leaf| leaf.label.part == Part::LeftOut);
            (named || !footprint.images.is_empty() || !file.errors.is_empty())
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
    duplicates.served = served::find(&images);
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

fn one(reader: &Reader<'_>, path: &Path) -> (FileSize, Footprint) {
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
    let errors = vec![crate::error::chain(error)];
    FileSize {
        file: path.display().to_string(),
        kind: "unreadable".to_owned(),
        size: 0,
        inflated: 0,
        errors,
    }
}

/// What is compared with: a file with device code, or one that was saved.
///
/// # Errors
/// It cannot be read, or it could not be read completely when it was saved.
pub(crate) fn measure_old(path: &Path, counted: &Counted, session: &Session) -> Result<Sizes> {
    let old = match load(path, counted)? {
        Some(saved) => saved,
        None => measure(&[path.to_owned()], counted, session)?,
    };
    if let Some(error) = old.files.iter().flat_map(|file| &file.errors).next() {
        bail!("cannot read the --diff file: {error}");
    }
    Ok(old)
}
