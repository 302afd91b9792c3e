//! Generates host objects: payloads become plans, and plans become objects in the temporary
//! directory. Images do not pass through LLVM but are streamed into objects of their own. If the
//! user is shown the module, it contains the images instead.

pub(crate) mod image_object;
mod plan;
mod registration_object;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use rayon::prelude::*;

use crate::args::settings::LinkSettings;
use crate::edit::backpatch::{Filling, REGISTERED, placeholder};
use crate::formats::offload_sections::entry_section;
use crate::io::rope::Rope;
use crate::link::payload::{Group, Payload};
use crate::llvm::protocol::Form;
use crate::llvm::{Llvm, Purpose};
use crate::registration::sycl;
use crate::registration::{self, Plan};
use crate::store::Cache;
use crate::sys::session::Session;
use crate::sys::threads;
use image_object::{HostObject, StreamedImage};

/// Size in bytes from which an image gets an object of its own.
const LARGE: u64 = 8 << 20;

/// The facts about the link that this stage needs.
pub(crate) struct RegisterContext<'a> {
    pub settings: &'a LinkSettings,
    /// The output as the user named it.
    pub output: &'a Path,
    pub host_triple: &'a str,
    /// The data that the registration passes to SYCL's runtime.
    pub sycl: sycl::Registration,
    /// The objects have placeholders instead of the images, which are written into the program
    /// after its link.
    pub late: bool,
    /// The major version of the device compiler, if it is known.
    pub device_compiler: Option<u32>,
    /// The control-flow protection of the host objects (`Plan::protection`).
    pub protection: u32,
    /// Generates registration code.
    pub llvm: &'a Llvm<'a>,
    pub cache: Option<&'a Arc<Cache>>,
}

/// Starts generating the registration code for the images of `groups` while they are linked, if the
/// code is known already and not in the cache.
pub(crate) fn begin(groups: &[Group], context: &RegisterContext<'_>) {
    let plans: Option<Vec<Plan>> = groups
        .iter()
        .map(|group| plan::before(group, context))
        .collect();
    match plans {
        Some(plans) => {
            let missing: Vec<Vec<u8>> = plans
                .iter()
                .filter_map(|plan| registration_object::missing(plan, context))
                .collect();
            if !missing.is_empty() {
                context.llvm.start_early(context.host_triple, missing);
            }
        }
        None => context.llvm.start_early(context.host_triple, Vec::new()),
    }
}

/// Returns the objects to add to the host link, in order.
pub(crate) fn make(
    payloads: &[Payload],
    context: &RegisterContext<'_>,
    session: &Session,
) -> Result<Vec<PathBuf>> {
    let mut objects = Vec::new();
    for (index, payload) in payloads.iter().enumerate() {
        session.signals.check()?;
        objects.append(&mut host_objects(payload, index == 0, context, session)?);
        if context.late {
            continue;
        }
        // The objects contain the images now, so the images' files can be removed, unless a later
        // payload uses them.
        let later = |file: &Path| {
            payloads[index + 1..]
                .iter()
                .flat_map(files)
                .any(|other| other == file)
        };
        files(payload)
            .filter(|file| !later(file))
            .for_each(|file| session.scratch.discard(file));
    }
    Ok(objects)
}

/// Returns the images of `payloads`, each with its placeholder in the objects that [`make`] writes
/// for a late link.
pub(crate) fn fillings(
    payloads: &[Payload],
    context: &RegisterContext<'_>,
) -> Result<Vec<Filling>> {
    let mut fillings = Vec::new();
    for payload in payloads {
        let (plan, images) = plan::of(payload, context)?;
        let align = registration::plan_section(&plan).align.into();
        for image in images {
            let start = image.symbols.first().context("an image without symbols")?;
            let registered = start.at..start.at.saturating_add(start.size);
            fillings.push(Filling {
                placeholder: placeholder(&start.name),
                contents: image.contents,
                registered,
                align,
            });
        }
    }
    Ok(fillings)
}

/// Returns the placeholder of `image`, which is in the program until the image replaces it.
fn placeholder_image(image: StreamedImage) -> StreamedImage {
    let name = image.symbols.first().map_or("", |symbol| &symbol.name);
    let contents = Rope::from(placeholder(name).to_vec());
    let mut symbols = image.symbols;
    for (symbol, (at, size)) in symbols.iter_mut().zip([
        (REGISTERED.start, REGISTERED.end - REGISTERED.start),
        (REGISTERED.end, 0),
    ]) {
        (symbol.at, symbol.size) = (at, size);
    }
    StreamedImage { symbols, contents }
}

/// Returns the sections of the entries that are registered, each once.
pub(crate) fn tables(payloads: &[Payload]) -> Vec<&'static str> {
    let mut tables: Vec<&str> = payloads
        .iter()
        .map(|payload| entry_section(payload.generation, payload.kind))
        .collect();
    tables.sort_unstable();
    tables.dedup();
    tables
}

/// Returns the files with the contents of a payload's images.
fn files(payload: &Payload) -> impl Iterator<Item = &Path> {
    payload
        .images
        .iter()
        .flat_map(|image| image.contents.files())
}

fn host_objects(
    payload: &Payload,
    first: bool,
    context: &RegisterContext<'_>,
    session: &Session,
) -> Result<Vec<PathBuf>> {
    let base = context
        .output
        .file_name()
        .unwrap_or(context.output.as_os_str())
        .to_string_lossy()
        .into_owned();
    let stem = format!("{base}.{}.image", payload.kind.name());
    let (plan, mut streamed) = plan::of(payload, context)?;
    if context.late {
        streamed = streamed.into_iter().map(placeholder_image).collect();
    }
    let purpose = purpose(payload);
    if context.settings.run.print_wrapped_module {
        let text = context.llvm.make(Form::Text, &plan, &purpose)?;
        session
            .shell
            .line(String::from_utf8_lossy(&text).trim_end());
    }
    let wrapper = session.scratch.path(&format!("{stem}.wrapper"), "o")?;
    if context.settings.run.save_temps {
        let bitcode = session.scratch.path(&format!("{stem}.wrapper"), "bc")?;
        session.runner.show_in_process(&|| {
            registration_object::commands(payload, context, &bitcode, &wrapper, session)
        })?;
        session.runner.make(&bitcode, &|path| {
            write(path, &context.llvm.make(Form::Bitcode, &plan, &purpose)?)
        })?;
    }
    session.runner.make(&wrapper, &|path| {
        registration_object::write_with_note(
            path,
            &registration_object::object(&plan, &purpose, context, session)?,
            first,
            context,
        )
    })?;
    let mut objects = vec![wrapper];
    if !streamed.is_empty() {
        objects.append(&mut stream_images(&plan, &streamed, &stem, session)?);
    }
    Ok(objects)
}

/// Returns the purpose of the registration code of `payload`, for error reports.
fn purpose(payload: &Payload) -> Purpose {
    let inputs = files(payload).map(|file| {
        file.file_name()
            .unwrap_or(file.as_os_str())
            .to_string_lossy()
            .into_owned()
    });
    Purpose {
        step: format!("registration code for {}", payload.kind.name()),
        inputs: inputs.collect(),
    }
}

/// Writes objects for `images`, in their order, in parallel. A large image gets an object of its
/// own, because the kernel lets only one thread write to a file at a time.
fn stream_images(
    plan: &Plan,
    images: &[StreamedImage],
    stem: &str,
    session: &Session,
) -> Result<Vec<PathBuf>> {
    let is_large = |image: &StreamedImage| image.contents.size() >= LARGE;
    let groups: Vec<&[StreamedImage]> = images
        .chunk_by(|one, next| !is_large(one) && !is_large(next))
        .collect();
    let paths = groups
        .iter()
        .map(|_| session.scratch.path(stem, "o"))
        .collect::<Result<Vec<_>>>()?;
    let in_all = images
        .iter()
        .map(|image| image.contents.size())
        .fold(0, u64::saturating_add);
    let section = registration::plan_section(plan);
    let host = HostObject {
        triple: &plan.host_triple,
        protection: plan.protection,
    };
    let write = |images: &[StreamedImage], path: &Path| {
        session.signals.check()?;
        let mut out =
            File::create(path).with_context(|| format!("cannot write `{}`", path.display()))?;
        image_object::write(&mut out, host, section, images, in_all)
            .with_context(|| format!("cannot write `{}`", path.display()))
    };
    let written: Vec<Result<()>> = threads::in_parallel(|| {
        groups
            .par_iter()
            .zip(&paths)
            .map(|(images, path)| write(images, path))
            .collect()
    });
    written.into_iter().collect::<Result<()>>()?;
    Ok(paths)
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    std::fs::write(path, bytes).with_context(|| format!("cannot write `{}`", path.display()))
}
