//! Registration code for device images, as bitcode, text, assembly or an object, as from
//! `llvm-offload-wrapper` and `clang-offload-wrapper` (docs/spec/containers.md 5).
//! `offload_formats::registration` decides the contents of the registration.
//!
//! Small images pass through LLVM. For larger ones, LLVM writes the module without them, and
//! offld copies them to their positions in LLVM's output. Memory use does not depend on their size,
//! unless they must be decompressed.

#[cfg(test)]
#[cfg(feature = "with-llvm")]
mod tests;

use std::fs::File;
use std::io::{Seek, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};

use crate::llvm::{Llvm, Purpose};
use offld_system::io::file_slice::FileSlice;
use offld_system::io::outputs::{Output, Outputs, io_error};
use offld_system::io::rope::Rope;
use offld_system::session::Session;
use offload_formats::bitstream::images::{FIRST_MARK, insert};
use offload_formats::compose::Part;
use offload_formats::deferred_section::{Wanted, make_room};
use offload_formats::elf::notes;
use offload_formats::error::Malformed;
use offload_formats::model::{Generation, ObjectFormat, OffloadKind};
use offload_formats::registration::protocol::Form;
use offload_formats::registration::{
    self, ImagePlace, Images, LATER, Modules, Plan, PlannedImage, SyclImage, host, openmp, sycl,
};
use offload_formats::{magic, offload_binary};

/// The largest total size of images that pass through LLVM.
pub(crate) const INLINE_LIMIT: u64 = 1 << 20;
/// Directives for zeros in the assembly of different hosts.
const ZEROS: [&str; 3] = ["\t.zero\t", "\t.space\t", "\t.skip\t"];
/// The number of bytes per line of assembly.
const BYTES_PER_LINE: usize = 64;

/// The settings of a run of the wrapper.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub host_triple: String,
    /// The runtime.
    pub kind: OffloadKind,
    /// The entry table and the registration functions.
    pub generation: Generation,
    /// The images, in the order that the runtime sees.
    pub inputs: Vec<Input>,
    /// The output. `-` is stdout.
    pub output: PathBuf,
    /// The output format.
    pub emit: Emit,
    /// Whether ELF images get notes that name the tool that wrapped them.
    pub notes: bool,
    /// Whether the module becomes part of a relocatable link's output, so that later links must not
    /// take its images as inputs.
    pub relocatable: bool,
    /// If the images are larger in total, none passes through LLVM (`INLINE_LIMIT`, except in
    /// tests).
    pub inline_limit: u64,
}

#[derive(Debug, Clone)]
pub(crate) struct Input {
    /// The input. `-` is stdin.
    pub path: PathBuf,
    /// The target ID to register with the image.
    pub offload_arch: Option<String>,
}

/// The output format of a module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Emit {
    /// LLVM bitcode.
    Bitcode,
    /// LLVM IR as text.
    Text,
    /// Assembly for the host.
    Assembly,
    /// An object for the host.
    Object,
}

impl Emit {
    /// The format according to the output's file extension.
    pub(crate) fn of(output: &Path) -> Emit {
        match output.extension().and_then(|extension| extension.to_str()) {
            Some("ll") => Emit::Text,
            Some("s") => Emit::Assembly,
            Some("o" | "obj") => Emit::Object,
            _ => Emit::Bitcode,
        }
    }
}

/// Writes the registration code for `request`.
pub(crate) fn wrap(request: &Request, llvm: &Llvm<'_>, session: &Session) -> Result<()> {
    host::check(&request.host_triple)
        .with_context(|| format!("'{}': unsupported target triple", request.host_triple))?;
    if matches!(request.kind, OffloadKind::Cuda | OffloadKind::Hip) && request.inputs.len() != 1 {
        bail!("CUDA / HIP offloading uses a single fatbinary or offload bundle");
    }
    let mut images = Vec::new();
    for input in &request.inputs {
        let mut source = Source::open(&input.path, session)?;
        if request.notes {
            add_notes(&mut source, session)?;
        }
        images.append(&mut found(request, input, &source)?);
    }
    if images.is_empty() {
        bail!("the inputs contain no image");
    }
    if request.emit == Emit::Bitcode
        && let Some(size) = images
            .iter()
            .map(|image| image.content.size())
            .find(|size| *size > u32::MAX.into())
    {
        bail!("an image of {size} bytes is too large for bitcode: write an object with --emit=o");
    }
    let total = images.iter().map(|image| image.content.size()).sum::<u64>();
    let places = if total <= request.inline_limit {
        Places::Inline
    } else {
        Places::Later {
            marked: request.emit != Emit::Object,
        }
    };
    let plan = plan(request, &images, places)?;
    let contents: Vec<Rope> = images.into_iter().map(|image| image.content).collect();
    let mut outputs = Outputs::new(session);
    let mut out = outputs.create_or_stdout(&request.output)?;
    write(llvm, &plan, request.emit, contents, &mut out)
        .with_context(|| format!("cannot write '{}'", request.output.display()))?;
    outputs.commit()
}

/// Contents that the module holds.
struct Image {
    content: Rope,
    role: ImageRole,
}

/// The registration of an image's contents.
enum ImageRole {
    /// OpenMP: one image per range, with the target ID from the user.
    Ranges(Vec<std::ops::Range<u64>>, Option<String>),
    /// CUDA and HIP: the single fatbinary or bundle.
    Whole,
    /// SYCL: an image with its description.
    Sycl {
        image_kind: offload_formats::model::ImageKind,
        triple: String,
        symbols: Vec<String>,
    },
}

/// The images in an input.
fn found(request: &Request, input: &Input, source: &Source) -> Result<Vec<Image>> {
    let broken = |fault: Malformed| anyhow!(fault).context(format!("'{}'", input.path.display()));
    let content = source.content();
    match request.kind {
        OffloadKind::Cuda | OffloadKind::Hip => Ok(vec![Image {
            content,
            role: ImageRole::Whole,
        }]),
        OffloadKind::Sycl => sycl_images(source).map_err(broken),
        OffloadKind::OpenMp => {
            let plain = source.inflated().map_err(broken)?;
            let parts =
                openmp::parts(plain.as_deref().unwrap_or(source.bytes())).map_err(broken)?;
            if parts.len() > 1 && input.offload_arch.is_some() {
                bail!(
                    "'{}' holds {} images, but --offload-arch applies to only one: wrap them as separate files",
                    input.path.display(),
                    parts.len()
                );
            }
            let content = plain.map_or(content, Rope::from);
            let image = Image {
                content,
                role: ImageRole::Ranges(parts, input.offload_arch.clone()),
            };
            // A file with only metadata-only images has nothing to register.
            Ok(
                if matches!(&image.role, ImageRole::Ranges(parts, _) if parts.is_empty()) {
                    Vec::new()
                } else {
                    vec![image]
                },
            )
        }
    }
}

/// SYCL's runtime takes bare images, with the descriptions that the OffloadBinaries around them
/// contain.
fn sycl_images(source: &Source) -> Result<Vec<Image>, Malformed> {
    let read = offload_binary::read_all(source.bytes())?;
    let with_contents = read.into_iter().filter(|image| !image.is_description());
    let image = |image: offload_binary::Image<'_>| {
        let role = ImageRole::Sycl {
            image_kind: image.image_kind,
            triple: image.triple().into_owned(),
            symbols: sycl::kernels(&image),
        };
        // Offset 0 marks an image from a compressed binary, whose bytes are not in the file.
        let content = match image.at {
            0 => Rope::from(image.image.into_owned()),
            at => source.part(at, image.image.len() as u64)?,
        };
        Ok(Image { content, role })
    };
    with_contents.map(image).collect()
}

/// Adds notes to an ELF image that name the tool that wrapped it.
fn add_notes(source: &mut Source, session: &Session) -> Result<()> {
    if !source.bytes().starts_with(&magic::ELF) {
        session.shell.warn(&format!(
            "{} is not an ELF image, so notes cannot be added to it.",
            source.path().display()
        ));
        return Ok(());
    }
    let parts = notes::add_wrapper_notes(source.bytes()).map_err(|fault| anyhow!(fault));
    let parts =
        parts.with_context(|| format!("cannot add notes to '{}'", source.path().display()))?;
    source.replace(parts)?;
    let name = source
        .path()
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    source.keep(&format!("{name}.elfwithnotes"), session)
}

/// How LLVM gets the images.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Places {
    Inline,
    Later { marked: bool },
}

fn plan(request: &Request, images: &[Image], places: Places) -> Result<Plan> {
    let mut planned = Vec::new();
    let mut sycl = Vec::new();
    let mut whole = None;
    for (index, image) in images.iter().enumerate() {
        let size = image.content.size();
        let place = match places {
            Places::Inline => ImagePlace::Inline(image.content.read()?),
            Places::Later { marked: true } => ImagePlace::Later {
                size,
                length: FIRST_MARK + index as u64,
            },
            Places::Later { marked: false } => ImagePlace::Later { size, length: size },
        };
        match &image.role {
            ImageRole::Ranges(parts, arch) => planned.push(PlannedImage {
                place,
                parts: parts.clone(),
                offload_arch: arch.clone(),
            }),
            ImageRole::Sycl {
                image_kind,
                triple,
                symbols,
            } => {
                sycl.push(SyclImage {
                    place,
                    image_kind: *image_kind,
                    triple: triple.clone(),
                    symbols: symbols.clone(),
                });
            }
            ImageRole::Whole => whole = Some(place),
        }
    }
    let images = match (request.kind, whole) {
        (OffloadKind::Cuda, Some(place)) => Images::Cuda(place),
        (OffloadKind::Hip, Some(place)) => Images::Hip(place),
        (OffloadKind::Sycl, _) => Images::Sycl(sycl),
        _ => Images::OpenMp(planned),
    };
    Ok(Plan {
        host_triple: request.host_triple.clone(),
        generation: request.generation,
        images,
        relocatable: request.relocatable,
        // No object of the program is known here. Like LLVM's tools, this leaves the setting to the
        // compiler of the module.
        protection: 0,
        modules: Modules::default(),
    })
}

// An input of the wrapper, and the contents to wrap. Only headers of the input are read here.

struct Source {
    path: PathBuf,
    piece: FileSlice,
    content: Rope,
}

impl Source {
    /// Opens the file at `path`. `-` is stdin.
    fn open(path: &Path, session: &Session) -> Result<Source> {
        let piece = FileSlice::open(path)?;
        let source = Source {
            path: path.to_owned(),
            content: Rope::from(piece.clone()),
            piece,
        };
        if source.piece.is_made() {
            source.keep("input", session)?;
        }
        Ok(source)
    }

    /// The path, as the user specified it.
    fn path(&self) -> &Path {
        &self.path
    }

    /// The contents of the file.
    fn bytes(&self) -> &[u8] {
        self.piece.bytes()
    }

    /// The contents to wrap: those of the file, or the ones from [`Source::replace`].
    fn content(&self) -> Rope {
        self.content.clone()
    }

    /// The `size` bytes of the file from `at`.
    fn part(&self, at: u64, size: u64) -> Result<Rope, Malformed> {
        self.piece
            .slice(at, size)
            .map(Rope::from)
            .ok_or(Malformed::new("image past the end", at))
    }

    /// Replaces the contents to wrap by these parts of the file.
    fn replace(&mut self, parts: Vec<Part>) -> Result<(), Malformed> {
        self.content = Rope::of_parts(&self.piece, parts, [])?;
        Ok(())
    }

    /// With `--save-temps`, writes the contents, which are in no other file, to the temporary file
    /// `<stem>.tmp` and prints its path.
    fn keep(&self, stem: &str, session: &Session) -> Result<()> {
        if !session.scratch.keeps() {
            return Ok(());
        }
        let file = session.scratch.path(stem, "tmp")?;
        let written = File::create(&file).and_then(|mut out| self.content.write_to(&mut out));
        written.map_err(|error| io_error(&file, &error))?;
        session
            .shell
            .warn(&format!("keeping temporary file {}", file.display()));
        Ok(())
    }

    /// Returns the images of a file as uncompressed OffloadBinaries, because the runtime cannot
    /// decompress them. `None` if no image is compressed.
    fn inflated(&self) -> Result<Option<Vec<u8>>, Malformed> {
        let bytes = self.bytes();
        if !offload_binary::is_offload_binary(bytes) {
            return Ok(None);
        }
        let images = offload_binary::read_all(bytes)?;
        if images.iter().all(|image| image.at != 0) {
            return Ok(None);
        }
        let mut plain = Vec::new();
        for image in images.iter().filter(|image| !image.is_description()) {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let strings: Vec<_> = image
                .strings
                .iter()
                .map(|(key, value)| (text(key), text(value)))
                .collect();
            let strings: Vec<_> = strings
                .iter()
                .map(|(key, value)| (key.as_str(), value.as_str()))
                .collect();
            plain.extend(offload_binary::write(
                image.image_kind,
                image.offload_kind,
                image.flags,
                &strings,
                &image.image,
            ));
        }
        Ok(Some(plain))
    }
}

// The output, as bitcode, text, assembly or an object.

/// Writes LLVM's output for `plan` to `out`, with the large images of `contents` copied into their
/// positions.
fn write(
    llvm: &Llvm<'_>,
    plan: &Plan,
    emit: Emit,
    contents: Vec<Rope>,
    out: &mut Output,
) -> Result<()> {
    let late = places(plan).any(|place| matches!(place, ImagePlace::Later { .. }));
    let form = match emit {
        Emit::Bitcode => Form::Bitcode,
        Emit::Text => Form::Text,
        Emit::Assembly => Form::Assembly,
        Emit::Object => Form::Object,
    };
    let step = format!("registration code for {}", plan.images.kind().name());
    let inputs = vec![format!("{} images", contents.len())];
    let made = llvm.make(form, plan, &Purpose { step, inputs })?;
    if !late {
        return Ok(out.write_all(&made)?);
    }
    match emit {
        Emit::Bitcode => bitcode(&made, contents, out),
        Emit::Text => pieces(pieces_of_module(&made, &contents)?, &contents, out),
        Emit::Assembly => pieces(pieces_of_assembly(&made, &contents)?, &contents, out),
        Emit::Object => object(plan, made, &contents, out),
    }
}

fn places(plan: &Plan) -> Box<dyn Iterator<Item = &ImagePlace> + '_> {
    match &plan.images {
        Images::OpenMp(images) => Box::new(images.iter().map(|image| &image.place)),
        Images::Sycl(images) => Box::new(images.iter().map(|image| &image.place)),
        Images::Cuda(place) | Images::Hip(place) | Images::SyclBinary(place, _) => {
            Box::new(std::iter::once(place))
        }
    }
}

fn bitcode(module: &[u8], contents: Vec<Rope>, out: &mut Output) -> Result<()> {
    let sizes: Vec<u64> = contents.iter().map(Rope::size).collect();
    let parts = insert(module, &sizes).context("cannot put the images into the bitcode")?;
    Rope::of_parts(&FileSlice::owned(Vec::new()), parts, contents)?.copy_to(out)?;
    Ok(())
}

fn pieces(pieces: Vec<TextPiece>, contents: &[Rope], out: &mut Output) -> Result<()> {
    for piece in pieces {
        match piece {
            TextPiece::Text(text) => out.write_all(text.as_bytes())?,
            TextPiece::Image(index, encode) => {
                let mut encoded = Vec::new();
                contents
                    .get(index)
                    .context("an image that does not exist")?
                    .for_each_chunk(|chunk| {
                        encoded.clear();
                        encode(chunk, &mut encoded);
                        out.write_all(&encoded)
                    })?;
            }
        }
    }
    Ok(())
}

fn object(plan: &Plan, object: Vec<u8>, contents: &[Rope], out: &mut Output) -> Result<()> {
    let coff = ObjectFormat::of(&plan.host_triple) == ObjectFormat::Coff;
    let section = registration::deferred_section(plan, coff);
    let wanted = Wanted {
        name: section.name,
        prefix: LATER,
        listed: section.listed,
    };
    let room = make_room(object, wanted).context("cannot put the images into the object")?;
    let ends = room.variables.iter().skip(1).copied().chain([room.size]);
    let rows: Vec<_> = room.variables.iter().zip(ends).zip(contents).collect();
    let fits = rows.iter().all(|((start, end), content)| {
        start
            .checked_add(content.size())
            .is_some_and(|own| own <= *end)
    });
    if !fits || room.variables.len() != contents.len() {
        // On 32-bit hosts, LLVM truncates the sizes of such images without an error.
        bail!(
            "objects of this host cannot hold {} bytes of images",
            contents.iter().map(Rope::size).sum::<u64>()
        );
    }
    out.write_all(&room.object)?;
    for ((start, _), content) in rows {
        out.pad_to(room.at + start)?;
        content.copy_to(out)?;
    }
    out.pad_to(room.at + room.size)?;
    Ok(out.rewind()?)
}

// Inserts images into a module's text or assembly. LLVM has printed zeros in their place, with a
// length that occurs nowhere else in the module (`FIRST_MARK` and the numbers after it). A string
// replaces the zeros.

/// A function that encodes an image's bytes.
type Encode = fn(&[u8], &mut Vec<u8>);

/// A part of a text with images.
enum TextPiece {
    Text(String),
    /// The image with this index.
    Image(usize, Encode),
}

/// Inserts images into the text of a module.
fn pieces_of_module(text: &[u8], contents: &[Rope]) -> Result<Vec<TextPiece>> {
    split_at_images(text, contents, |rest, mark, size| {
        let zeros = format!("[{mark} x i8] zeroinitializer");
        let (before, after) = rest.split_once(&zeros)?;
        Some(match size {
            0 => (
                format!("{before}[0 x i8] zeroinitializer"),
                None,
                after.to_owned(),
            ),
            _ => (
                format!("{before}[{size} x i8] c\""),
                Some(module_string as Encode),
                format!("\"{after}"),
            ),
        })
    })
}

/// Inserts images into assembly.
fn pieces_of_assembly(text: &[u8], contents: &[Rope]) -> Result<Vec<TextPiece>> {
    split_at_images(text, contents, |rest, mark, size| {
        let (before, after) = ZEROS
            .iter()
            .find_map(|zeros| rest.split_once(&format!("{zeros}{mark}\n")))?;
        Some((
            before.to_owned(),
            (size > 0).then_some(assembly_lines as Encode),
            after.to_owned(),
        ))
    })
}

/// Splits `text` at the positions of images, in their order, and replaces the marks by the images'
/// sizes everywhere else.
fn split_at_images(
    text: &[u8],
    contents: &[Rope],
    cut: impl Fn(&str, u64, u64) -> Option<(String, Option<Encode>, String)>,
) -> Result<Vec<TextPiece>> {
    let mut rest = String::from_utf8_lossy(text).into_owned();
    let mut pieces = Vec::new();
    for (index, content) in contents.iter().enumerate() {
        let Some((before, encode, after)) = cut(&rest, FIRST_MARK + index as u64, content.size())
        else {
            bail!("LLVM's text has no place for an image");
        };
        pieces.push(TextPiece::Text(before));
        pieces.extend(encode.map(|encode| TextPiece::Image(index, encode)));
        rest = after;
    }
    pieces.push(TextPiece::Text(rest));
    for piece in &mut pieces {
        let TextPiece::Text(text) = piece else {
            continue;
        };
        for (index, content) in contents.iter().enumerate() {
            *text = text.replace(
                &(FIRST_MARK + index as u64).to_string(),
                &content.size().to_string(),
            );
        }
    }
    Ok(pieces)
}

/// Encodes bytes as LLVM prints strings: unprintable bytes, quotation marks and backslashes in
/// hexadecimal.
fn module_string(bytes: &[u8], to: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for byte in bytes {
        match byte {
            b'"' | b'\\' | ..0x20 | 0x7f.. => {
                to.extend([
                    b'\\',
                    DIGITS[usize::from(byte >> 4)],
                    DIGITS[usize::from(byte & 15)],
                ]);
            }
            plain => to.push(*plain),
        }
    }
}

/// Encodes bytes as `.ascii` lines. Unprintable bytes, quotation marks and backslashes become
/// three-digit octal numbers.
fn assembly_lines(bytes: &[u8], to: &mut Vec<u8>) {
    for line in bytes.chunks(BYTES_PER_LINE) {
        to.extend(b"\t.ascii\t\"");
        for byte in line {
            match byte {
                b'"' | b'\\' | ..0x20 | 0x7f.. => to.extend([
                    b'\\',
                    b'0' + (byte >> 6),
                    b'0' + (byte >> 3 & 7),
                    b'0' + (byte & 7),
                ]),
                plain => to.push(*plain),
            }
        }
        to.extend(b"\"\n");
    }
}
