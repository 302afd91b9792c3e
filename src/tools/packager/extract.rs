//! Extracts images from a file: those that the `--image` arguments ask for, or all of them where there are none.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::arguments::ImageArguments;
use super::names;
use super::read::{Image, images};
use crate::io::outputs::{Output, Outputs, io_error};
use crate::io::piece::{Piece, write_archive};
use crate::sys::session::Session;
use crate::target::Target;

/// What is extracted, and where from.
#[derive(Debug)]
pub(crate) struct Extract {
    /// The file; `-` is stdin.
    pub input: PathBuf,
    /// What is looked for; where this is empty, all images are extracted.
    pub images: Vec<ImageArguments>,
    /// Whether the images that match one of `images` become an archive.
    pub archive: bool,
    /// Whether it is an error, and nothing is written, when something looked for is not there.
    pub all_must_match: bool,
}

/// What extraction has written.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Extracted {
    /// The files that the user has not named: their names are generated from what the images are for.
    pub generated: Vec<String>,
}

/// A file to write: an image, or an archive of several.
struct ExtractedFile<'a> {
    path: PathBuf,
    members: Vec<(String, &'a Piece)>,
    archive: bool,
}

/// Extracts. Either all files appear or none.
pub(crate) fn extract(request: &Extract, session: &Session) -> Result<Extracted> {
    let piece = Piece::open(&request.input)?;
    let found = images(&request.input, &piece, session)?;
    let mut plan = ExtractPlan { request, session, files: Vec::new(), by_path: HashMap::new(), generated: Vec::new() };
    if found.is_empty() {
        plan.missing(&format!("'{}' holds no device images", request.input.display()))?;
    } else if request.images.is_empty() {
        plan.everything(&found)?;
    }
    for wanted in request.images.iter().filter(|_| !found.is_empty()) {
        plan.matching(wanted, &found)?;
    }
    let ExtractPlan { files, generated, .. } = plan;
    let mut outputs = Outputs::new(session);
    for file in &files {
        let mut out = outputs.create_or_stdout(&file.path)?;
        file.write(&mut out, session)?;
    }
    outputs.commit()?;
    Ok(Extracted { generated })
}

/// The files that will be written.
struct ExtractPlan<'a, 'r> {
    request: &'r Extract,
    session: &'r Session,
    files: Vec<ExtractedFile<'a>>,
    /// The index in `files` of each path; stdout (`-`) is not in it.
    by_path: HashMap<PathBuf, usize>,
    generated: Vec<String>,
}

impl<'a> ExtractPlan<'a, '_> {
    /// Something that was asked for is not there: an error or a warning, as the user wants.
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
        let of_member = |image: &&Image| match wanted.get("member") {
            Some(member) => image.member.as_ref().is_some_and(|own| own.as_bytes() == member),
            None => true,
        };
        found.iter().filter(of_member).for_each(|image| collect(wanted, image, &mut matches));
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
            self.put(ExtractedFile { path: file, members, archive: true });
        } else {
            if matches.len() > 1 {
                self.clash(&file);
            }
            self.put(ExtractedFile { path: file, members: vec![(String::new(), &last.contents)], archive: false });
        }
        Ok(())
    }

    fn clash(&self, file: &Path) {
        self.session.shell.warn(&format!("Multiple inputs match to a single file, '{}'", file.display()));
    }

    /// Adds a file that the user named. Of several with one name the last is written; on stdout, all are.
    fn put(&mut self, file: ExtractedFile<'a>) {
        let known = self.by_path.get(&file.path).and_then(|at| self.files.get_mut(*at));
        if let Some(known) = known {
            let path = file.path.clone();
            *known = file;
            return self.clash(&path);
        }
        if file.path != Path::new("-") {
            self.by_path.insert(file.path.clone(), self.files.len());
        }
        self.files.push(file);
    }

    /// Adds a file with a generated name for each image. The name has a number in it, the image's index, or the next one at which
    /// no other image has the name. An image that was added under the name before is not added again.
    fn generate(&mut self, matches: &[&'a Image]) {
        let mut index = 0;
        for image in leaves(matches) {
            let (name, is_new) = loop {
                let name = self.name(image, index);
                index += 1;
                match self.by_path.get(Path::new(&name)).and_then(|at| self.files.get(*at)) {
                    None => break (name, true),
                    Some(known) if known.is_of(image) => break (name, false),
                    Some(_) => {}
                }
            };
            if is_new {
                let members = vec![(name.clone(), &image.contents)];
                self.put(ExtractedFile { path: PathBuf::from(&name), members, archive: false });
                self.generated.push(name);
            }
        }
    }

    fn name(&self, image: &Image, index: usize) -> String {
        names::generated(&self.request.input, image.get(b"triple"), image.get(b"arch"), index, image.image_kind)
    }
}

/// Adds `image` to `matches` if it is what is wanted, else those of the images in it that are.
fn collect<'a>(wanted: &ImageArguments, image: &'a Image, matches: &mut Vec<&'a Image>) {
    let device = is_device(wanted, image);
    let strings = || {
        let asked = wanted.strings().into_iter();
        let stored = asked.filter(|(key, _)| *key != b"member");
        stored.filter(|(key, _)| !(device && (*key == b"triple" || *key == b"arch"))).all(|(key, value)| image.get(key) == value)
    };
    let kind = wanted.get("kind").is_none() || wanted.kind() == image.offload_kind;
    if kind && strings() {
        matches.push(image);
    } else {
        image.inner.iter().for_each(|inner| collect(wanted, inner, matches));
    }
}

/// Whether the AMD GPU that is asked for is that of the image, under any of its names: `triple=amdgcn-amd-amdhsa,arch=gfx908` is
/// `triple=amdgpu9.08-amd-amdhsa` as well. A triple without `arch` asks for every device that it covers.
fn is_device(wanted: &ImageArguments, image: &Image) -> bool {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let Some(triple) = wanted.get("triple").map(text) else { return false };
    let own = Target::new(&text(image.get(b"triple")), &text(image.get(b"arch")));
    let Some(arch) = own.amd_arch() else { return false };
    match wanted.get("arch") {
        Some(asked) => Target::new(&triple, &text(asked)) == own,
        None => {
            let asked = Target::new(&triple, "");
            let rest = |triple: &str| triple.split_once('-').map(|(_, rest)| rest.to_owned());
            asked.amd_arch().is_some_and(|asked| asked.covers(&arch)) && rest(&asked.triple) == rest(&own.triple)
        }
    }
}

/// The images that hold no images themselves: an image that is a container is replaced by those in it.
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

impl ExtractedFile<'_> {
    /// Whether the file is this image and not an archive.
    fn is_of(&self, image: &Image) -> bool {
        !self.archive && matches!(&self.members[..], [(_, contents)] if contents.is(&image.contents))
    }

    fn write(&self, out: &mut Output, session: &Session) -> Result<()> {
        if !self.archive {
            return self
                .members
                .iter()
                .try_for_each(|(_, contents)| contents.copy_to(out))
                .map_err(|error| io_error(&self.path, &error));
        }
        let members = self.members.iter().map(|(name, contents)| (name.as_str(), *contents));
        write_archive(members, out, session).with_context(|| format!("cannot write the archive '{}'", self.path.display()))
    }
}
