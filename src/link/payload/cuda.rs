//! CUDA's payload: one fatbinary of all images, made by NVIDIA's `fatbinary` (docs/spec/link-driver.md 7).

use std::ffi::OsString;

use anyhow::Result;

use super::{BundleContext, Payload, PayloadImage};
use crate::args::response::Style;
use crate::io::rope::Rope;
use crate::link::device::Linked;
use crate::model::{Generation, OffloadKind};
use crate::sys::run::Cmd;
use crate::sys::session::Session;
use crate::sys::toolchain;

/// The fatbinary of the images of one generation.
pub(super) fn payload(
    images: &[&Linked],
    generation: Generation,
    context: &BundleContext<'_>,
    session: &Session,
) -> Result<Payload> {
    let output = session.scratch.path(&context.out_base, "fatbin")?;
    let mut args: Vec<OsString> = vec![if context.host_is_64_bit { "-64" } else { "-32" }.into(), "--create".into()];
    args.push(output.clone().into_os_string());
    for image in images {
        let arch = image.target.arch.strip_prefix("sm_").unwrap_or(&image.target.arch);
        let mut option = OsString::from(format!("--image3=kind=elf,sm={arch},file="));
        option.push(&image.path);
        args.push(option);
    }
    let cmd = Cmd {
        step: "bundling of CUDA images".to_owned(),
        program: session.runner.program(toolchain::cuda_tool("fatbinary", context.cuda_path), "fatbinary")?,
        args,
        quoting: Style::Gnu,
        inputs: images.iter().map(|image| format!("the image for {}", image.target)).collect(),
        output: Some(output.clone()),
    };
    session.runner.run(&cmd)?;
    Ok(Payload {
        kind: OffloadKind::Cuda,
        generation,
        images: vec![PayloadImage::whole(Rope::of_file(output.clone())?, Some(output))],
    })
}
