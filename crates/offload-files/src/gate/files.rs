//! The files that a rule applies to, with their images and sizes. A rule whose pattern matches
//! members of a wheel or another archive applies to each of these members by itself.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;

use super::policy::Rule;
use crate::contents::folders;
use crate::contents::layout::{Name, Names, Part};
use crate::contents::report::FileReport;
use crate::contents::selection::Choice;
use crate::contents::{self, Reader};
use crate::size::report::ImageSize;
use crate::size::{Counted, Item, Level, Sizes, measure};
use offld_system::session::Session;
use offload_formats::model::printable;

/// A file that a rule applies to as a whole or in part.
#[derive(Debug)]
pub(super) struct File {
    pub(super) path: PathBuf,
    /// The bytes that the rule applies to.
    pub(super) sizes: Sizes,
    /// The file itself, or its members that the rule applies to.
    pub(super) subjects: Vec<Subject>,
    /// The images and registrations that the rule applies to, once a requirement needs them.
    contents: OnceCell<FileReport>,
}

impl File {
    /// The images and registrations that `rule` applies to.
    pub(super) fn contents(&self, rule: &Rule, session: &Session) -> &FileReport {
        self.contents.get_or_init(|| {
            let options = contents::Options {
                kernels: true,
                registered: true,
                packs: true,
                selection: Arc::clone(&rule.selection),
                ..contents::Options::default()
            };
            Reader::new(options, session).one_of_many(&self.path)
        })
    }
}

/// A file or member that a rule applies to.
#[derive(Debug, Default)]
pub(super) struct Subject {
    /// `x.whl`, or `x.whl(lib/a.so)` for a member.
    pub(super) name: String,
    /// The device images.
    pub(super) images: Vec<ImageSize>,
    /// The bytes of debug information in the images.
    pub(super) debug: u64,
}

impl Subject {
    /// The architectures of the images that `is_selected` accepts, each once.
    pub(super) fn archs_of(&self, is_selected: impl Fn(&ImageSize) -> bool) -> Vec<&str> {
        let selected = self.images.iter().filter(|image| is_selected(image));
        let archs: BTreeSet<&str> = selected.map(|image| &*image.arch).collect();
        archs.into_iter().collect()
    }
}

/// Measures the files among `paths` that `rule` applies to. Also returns errors of reading.
///
/// # Errors
/// A signal arrived.
pub(super) fn measured(
    rule: &Rule,
    paths: &[PathBuf],
    max_unpacked: u64,
    session: &Session,
) -> Result<(Vec<File>, Vec<String>)> {
    let (found, faults) = folders::selected(paths, &rule.selection, session);
    let mut errors: Vec<String> = faults
        .iter()
        .map(|(path, error)| format!("{}: {error:#}", path.display()))
        .collect();
    let mut files = Vec::new();
    for one in found {
        let counted = Counted {
            names: Arc::new(Names::default()),
            max_unpacked,
            selection: Arc::clone(&rule.selection),
            keep_empty: true,
        };
        let sizes = measure(std::slice::from_ref(&one.path), &counted, session)?;
        errors.extend(sizes.files.iter().flat_map(|file| file.errors.clone()));
        let whole = rule.selection.of(&one.path, None) == Choice::Selected;
        let mut subjects = subjects(&one.path.display().to_string(), &sizes, whole);
        // A file in a directory, or a member, counts without device code only if a pattern names it.
        if !rule.has_pattern && !one.named {
            subjects.retain(|subject| !subject.images.is_empty());
        }
        if !subjects.is_empty() {
            files.push(File {
                path: one.path,
                sizes,
                subjects,
                contents: OnceCell::new(),
            });
        }
    }
    Ok((files, errors))
}

/// The file itself if the rule applies to the `whole` file, else its selected members.
fn subjects(file: &str, sizes: &Sizes, whole: bool) -> Vec<Subject> {
    let file = printable(file);
    if whole {
        let all = grouped(sizes, |_| Some(Name::NONE));
        let subject = all.into_values().next().unwrap_or_default();
        let name = file.into_owned();
        return vec![Subject { name, ..subject }];
    }
    let named = |(member, subject): (Arc<str>, Subject)| Subject {
        name: format!("{file}({})", printable(&member)),
        ..subject
    };
    members(sizes).map(named).collect()
}

/// The members of a wheel, zip file or tar archive, by their paths.
pub(super) fn members(sizes: &Sizes) -> impl Iterator<Item = (Arc<str>, Subject)> {
    let all = grouped(sizes, |item| {
        Some(item.key(Level::Member)).filter(|member| *member != Name::NONE)
    });
    all.into_iter()
        .map(|(member, subject)| (sizes.items.text(member), subject))
}

/// The images in each group of bytes, without the images of the host.
fn grouped(sizes: &Sizes, group: impl Fn(&Item) -> Option<Name>) -> BTreeMap<Name, Subject> {
    let items = &sizes.items;
    let debug = items.names.of(Part::Debug.name().as_bytes());
    let mut groups: BTreeMap<Name, Subject> = BTreeMap::new();
    let mut seen = vec![false; sizes.images.len()];
    for item in &items.list {
        let Some(group) = group(item) else { continue };
        let subject = groups.entry(group).or_default();
        let Some(index) = item.image.place() else {
            continue;
        };
        let Some((image, seen)) = sizes.images.get(index).zip(seen.get_mut(index)) else {
            continue;
        };
        if image.arch == "host" {
            continue;
        }
        if item.key(Level::Part) == debug {
            subject.debug += item.inflated;
        }
        if !std::mem::replace(seen, true) && image.inflated > 0 {
            subject.images.push(image.clone());
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn architectures_are_listed_once() {
        let image = |arch: &str, format: &str| ImageSize {
            input: String::new(),
            place: String::new(),
            kind: "cuda".to_owned(),
            triple: String::new(),
            target: String::new(),
            arch: arch.to_owned(),
            format: format.to_owned(),
            file: 1,
            inflated: 1,
        };
        let subject = Subject {
            images: vec![
                image("sm_90", "cubin"),
                image("compute_90", "ptx"),
                image("compute_90", "ptx"),
                image("compute_80", "ptx"),
            ],
            ..Subject::default()
        };
        let ptx = subject.archs_of(|image| image.format == "ptx");
        assert_eq!(ptx, ["compute_80", "compute_90"]);
        assert_eq!(subject.archs_of(|_| true).len(), 3);
        assert!(subject.archs_of(|_| false).is_empty());
    }
}
