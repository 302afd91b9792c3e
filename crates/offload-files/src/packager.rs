//! The tool llvm-offload-binary (clang-offload-packager): packs device images into OffloadBinaries,
//! and extracts them from any supported file (docs/spec/containers.md 4). Images are copied from
//! file to file, so that memory use does not depend on their size.

mod read;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io::{Read, Seek, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use offld_system::io::file_slice::{FileSlice, write_archive};
use offld_system::io::outputs::{Output, Outputs, io_error};
use offld_system::session::Session;
use offload_formats::magic::is_bitcode;
use offload_formats::model::{ImageKind, OffloadKind};
use offload_formats::offload_binary::{self, Entry, frame_of, plain_frame, shared_frame};
use offload_formats::recipe::Recipe;
use offload_formats::target::Target;
use read::{Image, Member, images};
pub use read::{Image as StoredImage, unpack};

/// The keys and values of `--image=<key>=<value>,…` in the order of first occurrence: the
/// properties of an image to pack, or the filter for images to extract.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageArguments {
    pairs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl ImageArguments {
    /// Arguments with these pairs. Each key must occur only once.
    pub fn new<'a>(pairs: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Self {
        ImageArguments {
            pairs: pairs
                .map(|(key, value)| (key.to_vec(), value.to_vec()))
                .collect(),
        }
    }

    /// Splits at commas, and each part at its first `=`. A part without `=` has an empty value. The
    /// values of a repeated key are joined by commas. An empty text is one empty key.
    pub fn parse(text: &OsStr) -> Self {
        let mut pairs: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        for part in text.as_bytes().split(|byte| *byte == b',') {
            let mut halves = part.splitn(2, |byte| *byte == b'=');
            let (key, value) = (
                halves.next().unwrap_or_default(),
                halves.next().unwrap_or_default(),
            );
            match pairs.iter_mut().find(|(known, _)| known == key) {
                Some((_, values)) => {
                    values.push(b',');
                    values.extend(value);
                }
                None => pairs.push((key.to_vec(), value.to_vec())),
            }
        }
        ImageArguments { pairs }
    }

    pub(crate) fn get(&self, key: &str) -> Option<&[u8]> {
        self.pairs
            .iter()
            .find(|(known, _)| known == key.as_bytes())
            .map(|(_, value)| value.as_slice())
    }

    /// The value of `file`, as given.
    pub(crate) fn file(&self) -> Option<OsString> {
        self.get("file")
            .map(|name| OsString::from_vec(name.to_vec()))
    }

    /// The strings to store with an image: all pairs except `file` and `kind`.
    pub(crate) fn strings(&self) -> Vec<(&[u8], &[u8])> {
        let pairs = self
            .pairs
            .iter()
            .map(|(key, value)| (key.as_slice(), value.as_slice()));
        pairs
            .filter(|(key, _)| *key != b"file" && *key != b"kind")
            .collect()
    }

    /// The number of the offload kind in `kind`, or 0 if there is none.
    pub(crate) fn kind(&self) -> u16 {
        self.get("kind").map_or(0, kind_number)
    }

    /// The argument for messages: as given, but with repeated keys joined.
    pub(crate) fn shown(&self) -> String {
        let pair = |(key, value): &(Vec<u8>, Vec<u8>)| {
            let (key, value) = (String::from_utf8_lossy(key), String::from_utf8_lossy(value));
            if value.is_empty() {
                key.into_owned()
            } else {
                format!("{key}={value}")
            }
        };
        self.pairs.iter().map(pair).collect::<Vec<_>>().join(",")
    }
}

/// The number of the offload kind `name`, or 0 for an unknown kind.
pub(crate) fn kind_number(name: &[u8]) -> u16 {
    OffloadKind::ALL
        .into_iter()
        .find(|kind| kind.name().as_bytes() == name)
        .map_or(0, |kind| kind as u16)
}

// Packs images and their metadata into one file: one OffloadBinary per image, or, in version 2,
// one for all images.

/// The format version of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// Version 1, which every release reads: one binary per image.
    #[default]
    Separate,
    /// Version 2, which LLVM 23 reads: one binary for all images.
    Shared,
}

/// The settings of packing.
#[derive(Debug)]
pub struct Pack {
    /// The images.
    pub images: Vec<ImageArguments>,
    /// The output. `-` is stdout.
    pub output: PathBuf,
    /// The format version.
    pub format: Format,
    /// The recipe that compresses all images together into one binary of version 3, which LLVM 24
    /// reads. `None` for uncompressed binaries.
    pub compression: Option<Recipe>,
    /// Whether to use the offload kind numbers of LLVM 15 to 20, in which HIP is 3.
    pub legacy_kinds: bool,
}

/// An image's file, of which only the first bytes have been read.
struct ImageFile<'a> {
    path: &'a Path,
    contents: FileSlice,
    entry: Entry<'a>,
}

/// Packs images according to `request`.
pub fn pack(request: &Pack, session: &Session) -> Result<()> {
    if request.images.is_empty() {
        bail!(
            "nothing to write to '{}': pass at least one --image",
            request.output.display()
        );
    }
    let mut inputs = Vec::new();
    for image in &request.images {
        let Some(files) = image.get("file") else {
            bail!("'file' is a required image arguments")
        };
        if image.get("triple").is_none() {
            session.shell.warn(&format!(
                "'--image={}' has no 'triple': linkers cannot find the image by its target; add triple=TRIPLE",
                image.shown()
            ));
        }
        let kind = kind_of(image, request.legacy_kinds, session)?;
        for file in files.split(|byte| *byte == b',') {
            inputs.push(open(Path::new(OsStr::from_bytes(file)), image, kind)?);
        }
    }
    let mut outputs = Outputs::new(session);
    let mut out = outputs.create_anew_or_stdout(&request.output)?;
    match (request.compression, request.format) {
        (Some(recipe), _) => write_compressed(&inputs, recipe, &mut out)?,
        (None, Format::Separate) => write_separate(&inputs, &mut out)?,
        (None, Format::Shared) => write_shared(&inputs, &mut out)?,
    }
    outputs.commit()
}

/// The number to store for an image's offload kind.
fn kind_of(image: &ImageArguments, legacy: bool, session: &Session) -> Result<u16> {
    const LEGACY_HIP: u16 = 3;
    let Some(name) = image.get("kind") else {
        return Ok(0);
    };
    let kind = kind_number(name);
    if kind == 0 && !matches!(name, b"" | b"none") {
        let name = String::from_utf8_lossy(name);
        session.shell.warn(&format!(
            "unknown kind '{name}', stored as 0: expected openmp, cuda, hip or sycl"
        ));
    }
    match kind {
        _ if !legacy => Ok(kind),
        kind if kind == OffloadKind::Hip as u16 => Ok(LEGACY_HIP),
        kind if kind == OffloadKind::Sycl as u16 => bail!(
            "'--image={}': the legacy format has no kind for sycl",
            image.shown()
        ),
        kind => Ok(kind),
    }
}

fn open<'a>(path: &'a Path, image: &'a ImageArguments, offload_kind: u16) -> Result<ImageFile<'a>> {
    let contents = FileSlice::open_one_of_many(path)?;
    let image_kind = if is_bitcode(contents.bytes()) {
        ImageKind::Bitcode
    } else {
        image_kind(path)
    };
    let entry = Entry {
        image_kind,
        offload_kind,
        flags: 0,
        strings: image.strings(),
        image_size: contents.size(),
    };
    Ok(ImageFile {
        path,
        contents,
        entry,
    })
}

fn write_separate(inputs: &[ImageFile<'_>], out: &mut Output) -> Result<()> {
    for input in inputs {
        let frame = frame_of(&input.entry);
        let start = out.stream_position()?;
        out.write_all(&frame.head)?;
        copy(input, out)?;
        out.pad_to(start + frame.total_size)?;
    }
    Ok(())
}

fn write_shared(inputs: &[ImageFile<'_>], out: &mut Output) -> Result<()> {
    let entries: Vec<Entry<'_>> = inputs.iter().map(|input| input.entry.clone()).collect();
    let frame = shared_frame(&entries);
    out.write_all(&frame.head)?;
    for input in inputs {
        copy(input, out)?;
    }
    Ok(out.pad_to(frame.total_size)?)
}

/// Compresses images while it reads them, so that none has to be in memory.
fn write_compressed(inputs: &[ImageFile<'_>], recipe: Recipe, out: &mut Output) -> Result<()> {
    let entries: Vec<Entry<'_>> = inputs.iter().map(|input| input.entry.clone()).collect();
    let frame = plain_frame(&entries);
    let images: u64 = inputs.iter().map(|input| input.contents.size()).sum();
    let padding = frame
        .total_size
        .saturating_sub(frame.head.len() as u64 + images);
    let mut plain: Box<dyn Read + '_> = Box::new(&frame.head[..]);
    for input in inputs {
        plain = Box::new(plain.chain(input.contents.reader()));
    }
    offload_binary::pack(
        plain.chain(std::io::repeat(0).take(padding)),
        frame.total_size,
        recipe,
        &mut *out,
    )?;
    Ok(())
}

fn copy(input: &ImageFile<'_>, out: &mut Output) -> Result<()> {
    input
        .contents
        .copy_to(out)
        .map_err(|error| io_error(input.path, &error))
}

/// Writes `images` to `out`. Each image is copied in chunks.
///
/// # Errors
/// There is no image, a string contains a zero (which terminates strings in version 1), or `out`
/// fails.
pub fn pack_to(images: &[&StoredImage], format: Format, out: &mut dyn Write) -> Result<()> {
    use offload_formats::error::Error;

    if images.is_empty() {
        return Err(Error::usage("no images to pack").into());
    }
    let entries: Vec<Entry<'_>> = images.iter().map(|image| image.entry()).collect();
    let ends_early = |text: &[u8]| text.contains(&0);
    let mut strings = entries.iter().flat_map(|entry| &entry.strings);
    if format == Format::Separate
        && strings.any(|(key, value)| ends_early(key) || ends_early(value))
    {
        return Err(Error::usage(
            "a string contains a zero byte, which only version 2 of the format can store",
        )
        .into());
    }
    let mut whole = |head: &[u8], parts: &[&StoredImage], size: u64| -> Result<()> {
        out.write_all(head)?;
        let mut written = head.len() as u64;
        for part in parts {
            written += std::io::copy(&mut part.contents.reader(), out)?;
        }
        std::io::copy(
            &mut std::io::repeat(0).take(size.saturating_sub(written)),
            out,
        )?;
        Ok(())
    };
    match format {
        Format::Separate => images.iter().zip(&entries).try_for_each(|(image, entry)| {
            let frame = frame_of(entry);
            whole(&frame.head, std::slice::from_ref(image), frame.total_size)
        }),
        Format::Shared => {
            let frame = shared_frame(&entries);
            whole(&frame.head, images, frame.total_size)
        }
    }
}

// Extracts images from a file: those that match the `--image` arguments, or all images if there
// are none.

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
fn image_kind(file: &Path) -> ImageKind {
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
fn generated_name(
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
