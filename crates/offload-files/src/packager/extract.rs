//! Extracts images from a file: those that match the `--image` arguments, or all images if there
//! are none.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::ImageArguments;
use super::read::{Image, Member, images};
use offld_system::io::file_slice::{FileSlice, write_archive};
use offld_system::io::outputs::{Output, Outputs, io_error};
use offld_system::session::Session;
use offload_formats::model::ImageKind;
use offload_formats::target::Target;

/// The settings of an extraction.
#[derive(Debug)]
pub struct Extract {
    /// The input. `-` is stdin.
    pub input: PathBuf,
    /// The filters. If there are none, all images are extracted.
    pub images: Vec<ImageArguments>,
    /// Whether the images that match one of `images` are written as an archive.
    pub archive: bool,
    /// Whether a filter without a match is an error, in which case nothing is written.
    pub all_must_match: bool,
}

/// The result of an extraction.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Extracted {
    /// The files with generated names, which the user has not specified.
    pub generated: Vec<String>,
}

/// A file to write: an image, or an archive of several images.
struct ExtractedFile<'a> {
    path: PathBuf,
    members: Vec<(String, &'a FileSlice)>,
    archive: bool,
}

/// Extracts images. Either all files appear, or none.
pub fn extract(request: &Extract, session: &Session) -> Result<Extracted> {
    let piece = FileSlice::open(&request.input)?;
    let found = images(&request.input, &piece, session)?;
    let mut plan = ExtractPlan {
        request,
        session,
        files: Vec::new(),
        by_path: HashMap::new(),
        generated: Vec::new(),
    };
    if found.is_empty() {
        plan.missing(&format!(
            "'{}' holds no device images",
            request.input.display()
        ))?;
    } else if request.images.is_empty() {
        plan.everything(&found)?;
    }
    for wanted in request.images.iter().filter(|_| !found.is_empty()) {
        plan.matching(wanted, &found)?;
    }
    let ExtractPlan {
        files, generated, ..
    } = plan;
    let mut outputs = Outputs::new(session);
    for file in &files {
        let mut out = outputs.create_anew_or_stdout(&file.path)?;
        file.write(&mut out, session)?;
    }
    outputs.commit()?;
    Ok(Extracted { generated })
}

/// The files to write.
struct ExtractPlan<'a, 'r> {
    request: &'r Extract,
    session: &'r Session,
    files: Vec<ExtractedFile<'a>>,
    /// The index in `files` of each path, except stdout (`-`).
    by_path: HashMap<PathBuf, usize>,
    generated: Vec<String>,
}

impl<'a> ExtractPlan<'a, '_> {
    /// Reports a filter without a match, as an error or a warning according to the user's choice.
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

    /// Adds the images that match one `--image`.
    fn matching(&mut self, wanted: &ImageArguments, found: &'a [Image]) -> Result<()> {
        let mut matches = Vec::new();
        let of_member = |image: &&Image| match wanted.get("member") {
            Some(member) => image
                .member
                .as_ref()
                .is_some_and(|own| own.name.as_bytes() == member),
            None => true,
        };
        found
            .iter()
            .filter(of_member)
            .for_each(|image| collect(wanted, image, &mut matches));
        let input = self.request.input.display();
        let Some(last) = matches.last() else {
            return self.missing(&format!(
                "no image in '{input}' matches '--image={}'",
                wanted.shown()
            ));
        };
        let Some(file) = wanted.file().map(PathBuf::from) else {
            if self.request.archive {
                bail!("Image must have a 'file' argument.");
            }
            self.generate(&matches);
            return Ok(());
        };
        if self.request.archive {
            self.put(ExtractedFile {
                path: file,
                members: self.members(&matches),
                archive: true,
            });
        } else {
            if matches.len() > 1 {
                self.clash(&file);
            }
            self.put(ExtractedFile {
                path: file,
                members: vec![(String::new(), &last.contents)],
                archive: false,
            });
        }
        Ok(())
    }

    fn clash(&self, file: &Path) {
        self.session.shell.warn(&format!(
            "Multiple inputs match to a single file, '{}'",
            file.display()
        ));
    }

    /// Adds a file with a name from the user. If several have the same name, the last one wins,
    /// except on stdout, which gets all.
    fn put(&mut self, file: ExtractedFile<'a>) {
        let known = self
            .by_path
            .get(&file.path)
            .and_then(|at| self.files.get_mut(*at));
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

    /// Adds a file with a generated name for each image. The name contains the image's index, or
    /// the next number that makes it unique. An image that was added before under that name is not
    /// added again.
    fn generate(&mut self, matches: &[&'a Image]) {
        let mut index = 0;
        for image in leaves(matches) {
            let (name, is_new) = loop {
                let name = self.name(image, index);
                index += 1;
                match self
                    .by_path
                    .get(Path::new(&name))
                    .and_then(|at| self.files.get(*at))
                {
                    None => break (name, true),
                    Some(known) if known.is_of(image) => break (name, false),
                    Some(_) => {}
                }
            };
            if is_new {
                let members = vec![(name.clone(), &image.contents)];
                self.put(ExtractedFile {
                    path: PathBuf::from(&name),
                    members,
                    archive: false,
                });
                self.generated.push(name);
            }
        }
    }

    /// The members of an archive of images. An image from an archive keeps the name of its member,
    /// as in LLVM, because users look for that name. If a member contains several images, each gets
    /// a generated name.
    fn members(&self, matches: &[&'a Image]) -> Vec<(String, &'a FileSlice)> {
        let all: Vec<(&Image, Option<&Member>)> = matches
            .iter()
            .flat_map(|image| {
                leaves(&[*image])
                    .into_iter()
                    .map(|leaf| (leaf, image.member.as_ref()))
            })
            .collect();
        let mut counts: HashMap<&Member, usize> = HashMap::new();
        all.iter()
            .filter_map(|(_, member)| *member)
            .for_each(|member| *counts.entry(member).or_default() += 1);
        let named = |(index, (image, member)): (usize, (&'a Image, Option<&Member>))| {
            let name = match member {
                Some(member) if counts.get(member) == Some(&1) => member.name.clone(),
                Some(member) => generated(Path::new(&member.name), image, index),
                None => self.name(image, index),
            };
            (name, &image.contents)
        };
        all.into_iter().enumerate().map(named).collect()
    }

    fn name(&self, image: &Image, index: usize) -> String {
        generated(&self.request.input, image, index)
    }
}

/// The generated name of an image of `input`.
fn generated(input: &Path, image: &Image, index: usize) -> String {
    generated_name(
        input,
        image.get(b"triple"),
        image.get(b"arch"),
        index,
        image.image_kind,
    )
}

/// Adds `image` to `matches` if it matches. Otherwise, adds the matching images in it.
fn collect<'a>(wanted: &ImageArguments, image: &'a Image, matches: &mut Vec<&'a Image>) {
    let device = is_device(wanted, image);
    let strings = || {
        let requested = wanted.strings().into_iter();
        let stored = requested.filter(|(key, _)| *key != b"member");
        stored
            .filter(|(key, _)| !(device && (*key == b"triple" || *key == b"arch")))
            .all(|(key, value)| image.get(key) == value)
    };
    let kind = wanted.get("kind").is_none() || wanted.kind() == image.offload_kind;
    if kind && strings() {
        matches.push(image);
    } else {
        image
            .inner
            .iter()
            .for_each(|inner| collect(wanted, inner, matches));
    }
}

/// Whether the requested AMD GPU is that of the image, in any spelling:
/// `triple=amdgcn-amd-amdhsa,arch=gfx908` equals `triple=amdgpu9.08-amd-amdhsa`. A triple without
/// `arch` matches every device that it covers.
fn is_device(wanted: &ImageArguments, image: &Image) -> bool {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let Some(triple) = wanted.get("triple").map(text) else {
        return false;
    };
    let own = Target::new(&text(image.get(b"triple")), &text(image.get(b"arch")));
    let Some(arch) = own.amd_arch() else {
        return false;
    };
    match wanted.get("arch") {
        Some(requested) => Target::new(&triple, &text(requested)) == own,
        None => {
            let requested = Target::new(&triple, "");
            let rest = |triple: &str| triple.split_once('-').map(|(_, rest)| rest.to_owned());
            requested
                .amd_arch()
                .is_some_and(|requested| requested.covers(&arch))
                && rest(&requested.triple) == rest(&own.triple)
        }
    }
}

/// The innermost images: an image that is a container is replaced by the images in it.
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
    /// Whether the file is this image, and not an archive.
    fn is_of(&self, image: &Image) -> bool {
        !self.archive
            && matches!(&self.members[..], [(_, contents)] if contents.is(&image.contents))
    }

    fn write(&self, out: &mut Output, session: &Session) -> Result<()> {
        if !self.archive {
            return self
                .members
                .iter()
                .try_for_each(|(_, contents)| contents.copy_to(out))
                .map_err(|error| io_error(&self.path, &error));
        }
        let members = self
            .members
            .iter()
            .map(|(name, contents)| (name.as_str(), *contents));
        write_archive(members, out, session)
            .with_context(|| format!("cannot write the archive '{}'", self.path.display()))
    }
}

/// The image kind of a file, by its extension (docs/spec/containers.md 4.2). LLVM 22 does not know
/// `spv`, which LLVM 23 added, and `ptx`, which CUDA's tools use.
pub(super) fn image_kind(file: &Path) -> ImageKind {
    match split(file).1 {
        b"o" => ImageKind::Object,
        b"bc" => ImageKind::Bitcode,
        b"cubin" => ImageKind::Cubin,
        b"fatbin" => ImageKind::Fatbinary,
        b"s" | b"ptx" => ImageKind::Ptx,
        b"spv" => ImageKind::Spirv,
        _ => ImageKind::None,
    }
}

/// The file extension for an image kind. Empty for kinds without one.
fn extension(kind: ImageKind) -> &'static str {
    match kind {
        ImageKind::Object => "o",
        ImageKind::Bitcode => "bc",
        ImageKind::Cubin => "cubin",
        ImageKind::Fatbinary => "fatbin",
        ImageKind::Ptx => "s",
        ImageKind::Spirv => "spv",
        ImageKind::None | ImageKind::Other(_) => "",
    }
}

/// Returns `<stem of the input>-<triple>-<arch>.<index>.<extension>`, always a file in the current
/// directory. Triple and architecture come from the file, and a `/` in them would lead elsewhere
/// (docs/spec/faults.md P8).
pub(super) fn generated_name(
    input: &Path,
    triple: &[u8],
    arch: &[u8],
    index: usize,
    kind: ImageKind,
) -> String {
    let stem = plain(split(input).0);
    format!(
        "{stem}-{}-{}.{index}.{}",
        plain(triple),
        plain(arch),
        extension(kind)
    )
}

/// Replaces each character that is invalid or unwise in a file name by `_`.
fn plain(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    text.chars()
        .map(|c| {
            if c == '/' || c == '\\' || c.is_control() || c == '\u{fffd}' {
                '_'
            } else {
                c
            }
        })
        .collect()
}

/// The file name without its directory, split at the last dot. As in LLVM, `.bc` is only an
/// extension.
fn split(file: &Path) -> (&[u8], &[u8]) {
    let name = file.file_name().unwrap_or(OsStr::new("")).as_bytes();
    match name.iter().rposition(|byte| *byte == b'.') {
        Some(dot) => (
            name.get(..dot).unwrap_or_default(),
            name.get(dot + 1..).unwrap_or_default(),
        ),
        None => (name, &[]),
    }
}
