//! Packs linked images into the containers that their runtimes read: one OffloadBinary for each
//! OpenMP image, one fatbinary for CUDA, one bundle for HIP. SYCL's linker has packed its images
//! already; they are put together if one container of all images is needed.

mod cuda;
mod hip;
pub(crate) mod offload_binary;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};

use crate::args::settings::LinkSettings;
use crate::formats::compressed;
use crate::io::rope::Rope;
use crate::link::device::Linked;
use crate::model::{Generation, OffloadKind, OffloadKinds};
use crate::store::Cache;
use crate::sys::atomic_file;
use crate::sys::session::Session;
use crate::sys::threads;

/// The images of one registration.
#[derive(Debug)]
pub(crate) struct Payload {
    /// The runtime.
    pub kind: OffloadKind,
    /// The generation of the entry table.
    pub generation: Generation,
    /// The images, in order.
    pub images: Vec<PayloadImage>,
}

/// One packed image, as a list of ranges of the linked images' files, so that it needs no file of
/// its own.
#[derive(Debug)]
pub(crate) struct PayloadImage {
    /// The bytes that the program contains.
    pub contents: Rope,
    /// The range of the contents that the runtime gets.
    pub image: Range<u64>,
    /// The file with the image outside its container, if there is one.
    pub file: Option<PathBuf>,
    /// The triple and the architecture that the container names; none without a container.
    pub target: Option<(String, String)>,
}

impl PayloadImage {
    /// Returns an image whose bytes are all for the runtime, and that is also in `file`.
    fn whole(contents: Rope, file: Option<PathBuf>) -> Self {
        let image = 0..contents.size();
        PayloadImage {
            contents,
            image,
            file,
            target: None,
        }
    }
}

/// The options for packing.
pub(crate) struct BundleContext<'a> {
    pub settings: &'a LinkSettings,
    /// The file name of the link's output, which is the prefix of temporary names.
    pub out_base: String,
    /// The triple of the host.
    pub host_triple: &'a str,
    pub cache: Option<&'a Arc<Cache>>,
}

impl<'a> BundleContext<'a> {
    /// Whether the host's pointers have 64 bits.
    fn host_is_64_bit(&self) -> bool {
        const NARROW: [&str; 6] = ["i386", "i486", "i586", "i686", "arm", "riscv32"];
        let arch = self.host_triple.split('-').next().unwrap_or_default();
        !NARROW
            .iter()
            .any(|narrow| arch == *narrow || (*narrow == "arm" && arch.starts_with("armv")))
    }

    /// Returns the cache, unless a dry run or `--save-temps` needs the commands.
    fn cache(&self) -> Option<&'a Arc<Cache>> {
        self.cache
            .filter(|_| !self.settings.run.dry_run && !self.settings.run.save_temps)
    }

    /// Returns the compression of a bundle; without `--compression-level=`, LLVM's default.
    fn compression(&self) -> Result<compressed::Options> {
        let workers = threads::for_compression();
        let mut options = compressed::Options {
            workers,
            ..compressed::Options::default()
        };
        if let Some(text) = &self.settings.device.compression_level {
            options.level = text
                .parse()
                .with_context(|| format!("--compression-level={text}: expected a number"))?;
        }
        Ok(options)
    }
}

/// The images of one registration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Group {
    /// The runtime.
    pub kind: OffloadKind,
    /// The generation of the entry table.
    pub generation: Generation,
    /// The images, by their index, in order.
    pub members: Vec<usize>,
}

/// Returns the registrations for `images`, whose kinds and generations are given. Kinds are in
/// registration order, and generations in order within a kind.
pub(crate) fn groups(images: &[(OffloadKinds, Generation)]) -> Vec<Group> {
    let mut groups = Vec::new();
    for kind in OffloadKind::ALL {
        let of_kind = || {
            images
                .iter()
                .enumerate()
                .filter(|(_, (kinds, _))| kinds.contains(kind))
        };
        let mut generations: Vec<Generation> =
            of_kind().map(|(_, (_, generation))| *generation).collect();
        generations.sort();
        generations.dedup();
        if kind == OffloadKind::Sycl {
            // SYCL's runtime gets its entries together with the registration, so one registration
            // serves all generations.
            generations.drain(..generations.len().saturating_sub(1));
        }
        for generation in generations {
            let of_this = |own: &Generation| kind == OffloadKind::Sycl || *own == generation;
            let members = of_kind()
                .filter(|(_, (_, own))| of_this(own))
                .map(|(index, _)| index)
                .collect();
            groups.push(Group {
                kind,
                generation,
                members,
            });
        }
    }
    groups
}

/// Returns the payloads of a link, one for each of its [`groups`].
pub(crate) fn bundle(
    linked: &[Linked],
    context: &BundleContext<'_>,
    session: &Session,
) -> Result<Vec<Payload>> {
    let described: Vec<_> = linked
        .iter()
        .map(|image| (image.kinds, image.generation))
        .collect();
    let payload = |Group {
                       kind,
                       generation,
                       members,
                   }: Group| {
        let images: Vec<&Linked> = members
            .iter()
            .filter_map(|index| linked.get(*index))
            .collect();
        match kind {
            OffloadKind::OpenMp => offload_binary::openmp(&images, generation, session),
            OffloadKind::Cuda => cuda::payload(&images, generation, context, session),
            OffloadKind::Hip => hip::payload(&images, generation, context, session),
            OffloadKind::Sycl => {
                offload_binary::sycl(&images, generation, context.settings.emit_fatbin_only)
            }
        }
    };
    groups(&described).into_iter().map(payload).collect()
}

/// Writes the only payload of the link as the output, atomically, instead of a host link
/// (`--emit-fatbin-only`).
pub(crate) fn emit(payloads: &[Payload], output: &Path, session: &Session) -> Result<()> {
    let [payload] = payloads else {
        let kinds: Vec<&str> = payloads.iter().map(|payload| payload.kind.name()).collect();
        match kinds.len() {
            0 => bail!(
                "--emit-fatbin-only: the inputs have no device code, so there is no fatbinary to write"
            ),
            _ => bail!(
                "--emit-fatbin-only writes one fatbinary, but the inputs have device code of several kinds: {}",
                kinds.join(", ")
            ),
        }
    };
    let [image] = payload.images.as_slice() else {
        bail!(
            "Expected a single bundled image for direct fat binary output: there are {} {} images",
            payload.images.len(),
            payload.kind.name()
        );
    };
    session
        .runner
        .edit(output, &|output| write_out(image, output))
}

fn write_out(image: &PayloadImage, output: &Path) -> Result<()> {
    let written = atomic_file::replace(output, |out| {
        if !out.metadata()?.is_file() {
            return Ok(image.contents.write_to(out)?);
        }
        image.contents.write_at(out, 0)?;
        Ok(out.set_len(image.contents.size())?)
    });
    written.with_context(|| format!("cannot write `{}`", output.display()))
}
