//! HIP payload: one offload bundle of all images in the format of clang-offload-bundler
//! (docs/spec/link-driver.md 7), compressed with `--compress`.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result, anyhow};

use super::{BundleContext, Payload, PayloadImage};
use crate::formats::bundle::{self, Id};
use crate::formats::compressed::Compressor;
use crate::io::rope::Rope;
use crate::link::device::Linked;
use crate::model::{Generation, OffloadKind};
use crate::sys::run::Equivalent;
use crate::sys::session::Session;
use crate::sys::threads;
use crate::sys::toolchain;

/// Alignment of code objects in a bundle, in bytes: the runtime maps them by page.
const ALIGN: u64 = 4096;

/// The host's target, with the same name on every host. In a bundle, a dash follows it.
const HOST_ID: &str = "host-x86_64-unknown-linux-gnu";

/// Returns the bundle of the images of one generation. It is written to a file only if it is
/// compressed, or with `--save-temps`.
pub(super) fn payload(
    images: &[&Linked],
    generation: Generation,
    context: &BundleContext<'_>,
    session: &Session,
) -> Result<Payload> {
    let mut bundle = composed(images)?;
    let path = || session.scratch.path(&context.out_base, "hipfb");
    let output = if context.settings.device.compress || session.scratch.keeps() {
        Some(path()?)
    } else {
        None
    };
    session.runner.show_in_process(&|| {
        let output = output.clone().map_or_else(path, Ok)?;
        Ok(vec![bundler_command(images, &output, context)?])
    })?;
    if let Some(output) = &output {
        write(&bundle, output, context, session)
            .with_context(|| format!("cannot write the HIP bundle `{}`", output.display()))?;
        bundle = Rope::of_file(output.clone())?;
    }
    Ok(Payload {
        kind: OffloadKind::Hip,
        generation,
        images: vec![PayloadImage::whole(bundle, output)],
    })
}

/// Returns the clang-offload-bundler command that writes the same bundle.
fn bundler_command(
    images: &[&Linked],
    output: &Path,
    context: &BundleContext<'_>,
) -> Result<Equivalent> {
    let mut args: Vec<OsString> = vec!["-type=o".into(), format!("-bundle-align={ALIGN}").into()];
    if context.settings.device.compress {
        args.push("-compress".into());
    }
    if let Some(level) = &context.settings.device.compression_level {
        args.push(format!("-compression-level={level}").into());
    }
    let ids: Vec<String> = images
        .iter()
        .map(|image| Ok(id(image)?.to_string()))
        .collect::<Result<_>>()?;
    args.push(
        format!(
            "-targets={HOST_ID}{}",
            ids.iter().map(|id| format!(",{id}")).collect::<String>()
        )
        .into(),
    );
    let option = |name: &str, file: &Path| {
        let mut option = OsString::from(name);
        option.push(file);
        option
    };
    args.push("-input=/dev/null".into());
    args.extend(images.iter().map(|image| option("-input=", &image.path)));
    args.push(option("-output=", output));
    Ok((
        toolchain::llvm_tool("clang-offload-bundler", &context.settings.device),
        args,
    ))
}

fn composed(images: &[&Linked]) -> Result<Rope> {
    let ids: Vec<Id> = images
        .iter()
        .map(|image| id(image))
        .collect::<Result<_>>()?;
    bundle::check(&ids).map_err(|fault| anyhow!("{fault}"))?;
    let files = images
        .iter()
        .map(|image| Rope::of_file(image.path.clone()))
        .collect::<Result<Vec<_>>>()?;
    if files.iter().all(|file| file.size() == 0) {
        // In a dry run, an empty file stands for the bundle, as with LLVM. A device link that runs
        // never leaves an empty file.
        return Ok(Rope::default());
    }
    // The host's entry is empty.
    let mut names = vec![format!("{HOST_ID}-")];
    names.extend(ids.iter().map(Id::to_string));
    let sizes = std::iter::once(0).chain(files.iter().map(Rope::size));
    let objects: Vec<(&str, u64)> = names.iter().map(String::as_str).zip(sizes).collect();
    let frame = bundle::frame(&objects, ALIGN)?;
    let mut all = Rope::default();
    all.push_bytes(frame.head);
    // Empty objects are padded as well.
    for (offset, file) in frame
        .offsets
        .into_iter()
        .zip(std::iter::once(Rope::default()).chain(files))
    {
        all.pad_to(offset);
        all.append(file);
    }
    Ok(all)
}

fn write(
    bundle: &Rope,
    output: &Path,
    context: &BundleContext<'_>,
    session: &Session,
) -> Result<()> {
    let mut out = File::create(output)?;
    if context.settings.device.compress {
        let (options, bundle) = (context.compression()?, bundle.clone());
        // At the highest level, zstd does not return for minutes.
        let pack = move || -> Result<()> {
            let mut packed = Compressor::new(BufWriter::new(out), bundle.size(), options)?;
            bundle.write_to(&mut packed)?;
            Ok(packed.finish()?.flush()?)
        };
        threads::unless_stopped(&session.signals, pack)??;
    } else {
        bundle.write_at(&mut out, 0)?;
        out.set_len(bundle.size())?;
    }
    Ok(())
}

/// Returns the bundle ID of an image. AMD's SPIR-V has its own triple. All other images have the
/// triple of amdgcn, because the runtime looks for no other.
fn id(image: &Linked) -> Result<Id> {
    let target = &image.target;
    let triple = if target.arch == "amdgcnspirv" {
        "spirv64-amd-amdhsa"
    } else {
        "amdgcn-amd-amdhsa"
    };
    let processor = target.target_id().with_context(|| {
        format!("the image for {target} names no architecture, which the HIP runtime needs: compile with --offload-arch=")
    })?;
    Ok(Id::new("hip", triple, &processor))
}
