//! CUDA payload: one fatbinary of all images, which NVIDIA's `fatbinary` writes
//! (docs/spec/link-driver.md 7).

use std::ffi::OsString;

use anyhow::Result;

use super::fatbinary_cache::FatbinaryCache;
use super::{BundleContext, Payload, PayloadImage};
use crate::args::response::Style;
use crate::io::rope::Rope;
use crate::link::device::Linked;
use crate::model::{Generation, OffloadKind};
use crate::sys::run::Cmd;
use crate::sys::session::Session;
use crate::sys::toolchain;

/// Returns the fatbinary of the images of one generation.
pub(super) fn payload(
    images: &[&Linked],
    generation: Generation,
    context: &BundleContext<'_>,
    session: &Session,
) -> Result<Payload> {
    let output = session.scratch.path(&context.out_base, "fatbin")?;
    let width = if context.host_is_64_bit { "-64" } else { "-32" };
    let mut args: Vec<OsString> = vec![width.into(), "--create".into()];
    args.push(output.clone().into_os_string());
    let mut described = Vec::new();
    for image in images {
        let arch = image
            .target
            .arch
            .strip_prefix("sm_")
            .unwrap_or(&image.target.arch);
        let option = format!("--image3=kind=elf,sm={arch},file=");
        let mut with_file = OsString::from(&option);
        with_file.push(&image.path);
        args.push(with_file);
        described.push((image.path.as_path(), option));
    }
    let cmd = Cmd {
        step: "bundling of CUDA images".to_owned(),
        program: session.runner.program(
            toolchain::cuda_tool("fatbinary", context.cuda_path),
            "fatbinary",
        )?,
        args,
        quoting: Style::Gnu,
        inputs: images
            .iter()
            .map(|image| format!("the image for {}", image.target))
            .collect(),
        output: Some(output.clone()),
    };
    let cached = context
        .cache
        .and_then(|cache| FatbinaryCache::new(cache, &cmd.program, width, &described));
    if cached
        .as_ref()
        .map_or(Ok(false), |cached| cached.fetch(&output))?
    {
        if context.verbose {
            session
                .shell
                .note(&format!("{}: found in the cache", cmd.step));
        }
    } else if let Some(cached) = cached {
        let (_, captured) = session.runner.run_capturing(&cmd, &|| ())?;
        cached.put(&output, &captured);
    } else {
        session.runner.run(&cmd)?;
    }
    Ok(Payload {
        kind: OffloadKind::Cuda,
        generation,
        images: vec![PayloadImage::whole(
            Rope::of_file(output.clone())?,
            Some(output),
        )],
    })
}
