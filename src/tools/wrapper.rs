//! Registration code for device images by themselves, as bitcode, text, assembly or object: what `llvm-offload-wrapper` and
//! `clang-offload-wrapper` are for (docs/spec/containers.md 5). What is registered, and how, is in `registration`.
//!
//! Small images pass through LLVM. Larger ones never do: the module is made without them, and they are copied to where they belong in
//! what LLVM made of it (`fill`), so memory does not grow with the images.

mod content;
mod fill;
mod source;
mod text;

#[cfg(all(test, feature = "llvm"))]
mod tests;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};

use crate::error::Malformed;
use crate::formats::bitstream::images::FIRST_MARK;
use crate::formats::elf::wrapper_notes;
use crate::formats::offload_binary;
use crate::io::outputs::Outputs;
use crate::llvm::Llvm;
use crate::model::{Generation, OffloadKind};
use crate::registration::{ImagePlace, Images, Plan, PlannedImage, SyclImage, host, openmp, sycl};
use crate::sys::session::Session;
use content::Content;
use source::Source;

/// Images up to this many bytes in all pass through LLVM.
pub const INLINE_LIMIT: u64 = 1 << 20;

/// What is to be wrapped, and how.
#[derive(Debug, Clone)]
pub struct Request {
    /// The host's triple.
    pub host_triple: String,
    /// The runtime.
    pub kind: OffloadKind,
    /// Which entry table and which registration functions.
    pub generation: Generation,
    /// The images, in the order the runtime sees them.
    pub inputs: Vec<Input>,
    /// Where the module goes; `-` is stdout.
    pub output: PathBuf,
    /// What the module is written as.
    pub emit: Emit,
    /// Whether ELF images get notes that say who has wrapped them.
    pub notes: bool,
    /// Images beyond this many bytes in all do not pass through LLVM (`INLINE_LIMIT`).
    pub inline_limit: u64,
}

/// One input.
#[derive(Debug, Clone)]
pub struct Input {
    /// The file; `-` is stdin.
    pub path: PathBuf,
    /// The target id to register with it.
    pub offload_arch: Option<String>,
}

/// What a module is written as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Emit {
    /// LLVM bitcode.
    Bitcode,
    /// LLVM IR as text.
    Text,
    /// Assembly of the host.
    Assembly,
    /// An object of the host.
    Object,
}

impl Emit {
    /// What the name of the output asks for.
    pub fn of(output: &Path) -> Emit {
        match output.extension().and_then(|extension| extension.to_str()) {
            Some("ll") => Emit::Text,
            Some("s") => Emit::Assembly,
            Some("o" | "obj") => Emit::Object,
            _ => Emit::Bitcode,
        }
    }
}

/// Writes the registration code that `request` asks for.
pub fn wrap(request: &Request, llvm: &Llvm<'_>, session: &Session) -> Result<()> {
    host::check(&request.host_triple).with_context(|| format!("'{}': unsupported target triple", request.host_triple))?;
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
        bail!("there is no image in what is to be wrapped");
    }
    if request.emit == Emit::Bitcode
        && let Some(size) = images.iter().map(|image| image.content.size()).find(|size| *size > u32::MAX.into())
    {
        bail!("an image of {size} bytes is more than bitcode can hold: write an object (--emit=o)");
    }
    let total = images.iter().map(|image| image.content.size()).sum::<u64>();
    let places =
        if total <= request.inline_limit { Places::Inline } else { Places::Later { marked: request.emit != Emit::Object } };
    let plan = plan(request, &images, places)?;
    let contents: Vec<Content> = images.into_iter().map(|image| image.content).collect();
    let mut outputs = Outputs::new(session);
    let mut out = outputs.create_or_stdout(&request.output)?;
    fill::write(llvm, &plan, request.emit, &contents, &mut out)
        .with_context(|| format!("cannot write '{}'", request.output.display()))?;
    outputs.commit()
}

/// One image that the module is to hold.
struct Image {
    content: Content,
    what: What,
}

/// What the runtime is told of an image.
enum What {
    Parts(Vec<std::ops::Range<u64>>, Option<String>),
    Whole,
    Sycl { image_kind: crate::model::ImageKind, triple: String, symbols: Vec<String> },
}

/// The images in an input.
fn found(request: &Request, input: &Input, source: &Source) -> Result<Vec<Image>> {
    let broken = |fault: Malformed| anyhow!(fault).context(format!("'{}'", input.path.display()));
    let content = source.content();
    match request.kind {
        OffloadKind::Cuda | OffloadKind::Hip => Ok(vec![Image { content, what: What::Whole }]),
        OffloadKind::Sycl => sycl_images(source).map_err(broken),
        OffloadKind::OpenMp => {
            let plain = source.inflated().map_err(broken)?;
            let parts = openmp::parts(plain.as_deref().unwrap_or(source.bytes())).map_err(broken)?;
            if parts.len() > 1 && input.offload_arch.is_some() {
                bail!(
                    "'{}' holds {} images, and one --offload-arch cannot be that of them all: wrap them as files of their own",
                    input.path.display(),
                    parts.len()
                );
            }
            let content = plain.map_or(content, Content::bytes);
            let image = Image { content, what: What::Parts(parts, input.offload_arch.clone()) };
            // A file of descriptions alone has nothing to register.
            Ok(if matches!(&image.what, What::Parts(parts, _) if parts.is_empty()) { Vec::new() } else { vec![image] })
        }
    }
}

/// For SYCL's runtime, images come out of their OffloadBinaries, which say what they are.
fn sycl_images(source: &Source) -> Result<Vec<Image>, Malformed> {
    let read = offload_binary::read_all(source.bytes())?;
    let held = read.into_iter().filter(|image| !image.is_description());
    let image = |image: offload_binary::Image<'_>| {
        let what =
            What::Sycl { image_kind: image.image_kind, triple: image.triple().into_owned(), symbols: sycl::kernels(&image) };
        // An image that had to be inflated is nowhere in the file.
        let content = match image.at {
            0 => Content::bytes(image.image.into_owned()),
            at => source.part(at, image.image.len() as u64),
        };
        Image { content, what }
    };
    Ok(held.map(image).collect())
}

/// Has an ELF image say who has wrapped it.
fn add_notes(source: &mut Source, session: &Session) -> Result<()> {
    if !source.bytes().starts_with(b"\x7fELF") {
        session.shell.warn(&format!("{} is not an ELF image, so notes cannot be added to it.", source.path().display()));
        return Ok(());
    }
    let changed = wrapper_notes::add(source.bytes()).map_err(|fault| anyhow!(fault));
    let changed = changed.with_context(|| format!("cannot add notes to '{}'", source.path().display()))?;
    source.replace(changed.head, changed.tail_at, changed.tail);
    source.keep(session)
}

/// Where LLVM finds the images.
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
            Places::Later { marked: true } => ImagePlace::Later { size, length: FIRST_MARK + index as u64 },
            Places::Later { marked: false } => ImagePlace::Later { size, length: size },
        };
        match &image.what {
            What::Parts(parts, arch) => planned.push(PlannedImage { place, parts: parts.clone(), offload_arch: arch.clone() }),
            What::Sycl { image_kind, triple, symbols } => {
                sycl.push(SyclImage { place, image_kind: *image_kind, triple: triple.clone(), symbols: symbols.clone() });
            }
            What::Whole => whole = Some(place),
        }
    }
    let images = match (request.kind, whole) {
        (OffloadKind::Cuda, Some(place)) => Images::Cuda(place),
        (OffloadKind::Hip, Some(place)) => Images::Hip(place),
        (OffloadKind::Sycl, _) => Images::Sycl(sycl),
        _ => Images::OpenMp(planned),
    };
    Ok(Plan { host_triple: request.host_triple.clone(), generation: request.generation, images, relocatable: false })
}
