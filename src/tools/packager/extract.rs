//! Images out of a file: those that the `--image` arguments ask for, else all of them.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::arguments::ImageArguments;
use super::names;
use super::read::{Image, images};
use crate::io::outputs::{Output, Outputs, trouble};
use crate::io::piece::{Piece, write_archive};
use crate::sys::session::Session;

/// What is extracted, and where from.
#[derive(Debug)]
pub struct Extract {
    /// The file; `-` is stdin.
    pub input: PathBuf,
    /// What is looked for; with none, all images are.
    pub images: Vec<ImageArguments>,
    /// What is found becomes an archive for each of `images`.
    pub archive: bool,
    /// Whether it is an error, and nothing is written, when something looked for is not there.
    pub all_must_match: bool,
}

/// What was written.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Extracted {
    /// The files whose names were made up here.
    pub generated: Vec<String>,
}

/// A file to write, and the images in it: one, unless it is an archive.
struct Target<'a> {
    path: PathBuf,
    members: Vec<(String, &'a Piece)>,
    archive: bool,
}

/// Extracts. Either all files appear or none.
pub fn extract(request: &Extract, session: &Session) -> Result<Extracted> {
    let piece = Piece::open(&request.input)?;
    let found = images(&request.input, &piece, session)?;
    let mut plan = Plan { request, session, targets: Vec::new(), by_path: HashMap::new(), generated: Vec::new() };
    if found.is_empty() {
        plan.missing(&format!("'{}' holds no device images", request.input.display()))?;
    } else if request.images.is_empty() {
        plan.everything(&found)?;
    }
    for wanted in request.images.iter().filter(|_| !found.is_empty()) {
        plan.matching(wanted, &found)?;
    }
    let Plan { targets, generated, .. } = plan;
    let mut outputs = Outputs::new(session);
    for target in &targets {
        let mut out = outputs.create_or_stdout(&target.path)?;
        target.write(&mut out, session)?;
    }
    outputs.commit()?;
    Ok(Extracted { generated })
}

/// The files that will be written.
struct Plan<'a, 'r> {
    request: &'r Extract,
    session: &'r Session,
    targets: Vec<Target<'a>>,
    /// Which of `targets` each path is; stdout is none.
    by_path: HashMap<PathBuf, usize>,
    generated: Vec<String>,
}

impl<'a> Plan<'a, '_> {
    fn missing(&self, what: &str) -> Result<()> {
        if self.request.all_must_match {
            bail!("{what}");
        }
        self.session.shell.warn(what);
        Ok(())
    }

    fn everything(&mut self, found: &'a [Image]) -> Result<()> {
        if self.request.archive {
            bail!("Image must have a 'file' argument.");
        }
        self.generate(&found.iter().collect::<Vec<_>>());
        Ok(())
    }

    /// What one `--image` asks for.
    fn matching(&mut self, wanted: &ImageArguments, found: &'a [Image]) -> Result<()> {
        let mut matches = Vec::new();
        found.iter().for_each(|image| collect(wanted, image, &mut matches));
        let input = self.request.input.display();
        let Some(last) = matches.last() else {
            return self.missing(&format!("no image in '{input}' matches '--image={}'", wanted.shown()));
        };
        let Some(file) = wanted.file().map(PathBuf::from) else {
            if self.request.archive {
                bail!("Image must have a 'file' argument.");
            }
            self.generate(&matches);
            return Ok(());
        };
        if self.request.archive {
            let leaves = leaves(&matches).into_iter().enumerate();
            let members = leaves.map(|(index, image)| (self.name(image, index), &image.contents)).collect();
            self.put(Target { path: file, members, archive: true });
        } else {
            if matches.len() > 1 {
                self.clash(&file);
            }
            self.put(Target { path: file, members: vec![(String::new(), &last.contents)], archive: false });
        }
        Ok(())
    }

    fn clash(&self, file: &Path) {
        self.session.shell.warn(&format!("Multiple inputs match to a single file, '{}'", file.display()));
    }

    /// Adds a file that the user named. The last one of a name counts; stdout takes them all.
    fn put(&mut self, target: Target<'a>) {
        let known = self.by_path.get(&target.path).and_then(|at| self.targets.get_mut(*at));
        if let Some(known) = known {
            let path = target.path.clone();
            *known = target;
            return self.clash(&path);
        }
        if target.path != Path::new("-") {
            self.by_path.insert(target.path.clone(), self.targets.len());
        }
        self.targets.push(target);
    }

    /// Adds a file with a name of ours for each image: the name of its place among them, or the next one that no other image has. An
    /// image that has the name already keeps it.
    fn generate(&mut self, matches: &[&'a Image]) {
        let mut index = 0;
        for image in leaves(matches) {
            let (name, is_new) = loop {
                let name = self.name(image, index);
                index += 1;
                match self.by_path.get(Path::new(&name)).and_then(|at| self.targets.get(*at)) {
                    None => break (name, true),
                    Some(known) if known.is_of(image) => break (name, false),
                    Some(_) => {}
                }
            };
            if is_new {
                let members = vec![(name.clone(), &image.contents)];
                self.put(Target { path: PathBuf::from(&name), members, archive: false });
                self.generated.push(name);
            }
        }
    }

    fn name(&self, image: &Image, index: usize) -> String {
        names::generated(&self.request.input, image.get(b"triple"), image.get(b"arch"), index, image.image_kind)
    }
}

/// Adds `image` if it is what is wanted, else those in it that are.
fn collect<'a>(wanted: &ImageArguments, image: &'a Image, matches: &mut Vec<&'a Image>) {
    let strings = || wanted.strings().into_iter().all(|(key, value)| image.get(key) == value);
    let kind = wanted.get("kind").is_none() || wanted.kind() == image.offload_kind;
    if kind && strings() {
        matches.push(image);
    } else {
        image.inner.iter().for_each(|inner| collect(wanted, inner, matches));
    }
}

/// The images proper: of a container within a container, those in it.
fn leaves<'a>(images: &[&'a Image]) -> Vec<&'a Image> {
    let mut all = Vec::new();
    for image in images {
        if image.inner.is_empty() {
            all.push(*image);
        } else {
            all.append(&mut leaves(&image.inner.iter().collect::<Vec<_>>()));
        }
    }
    all
}

impl Target<'_> {
    /// Whether it is this image, as it is.
    fn is_of(&self, image: &Image) -> bool {
        !self.archive && matches!(&self.members[..], [(_, contents)] if contents.is(&image.contents))
    }

    fn write(&self, out: &mut Output, session: &Session) -> Result<()> {
        if !self.archive {
            return self
                .members
                .iter()
                .try_for_each(|(_, contents)| contents.copy_to(out))
                .map_err(|error| trouble(&self.path, &error));
        }
        let members = self.members.iter().map(|(name, contents)| (name.as_str(), *contents));
        write_archive(members, out, session).with_context(|| format!("cannot write the archive '{}'", self.path.display()))
    }
}
