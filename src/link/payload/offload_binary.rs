//! OffloadBinaries as payloads.
//!
//! * OpenMP: each image in an OffloadBinary with its triple and architecture, so that tools can
//!   list it in the finished program. The runtime gets only the image inside. Images of LLVM 14
//!   have no container.
//! * SYCL: the files of SYCL's device linker, which are OffloadBinaries, or one OffloadBinary of
//!   all their images. The runtimes of LLVM 23 and later take the single one, and clang embeds it
//!   in a host object (`--emit-fatbin-only`).

use std::path::Path;

use anyhow::{Context, Result};

use super::PayloadImage;
use crate::link::device::Linked;
use offld_system::io::bytes::Bytes;
use offld_system::io::rope::Rope;
use offld_system::session::Session;
use offload_formats::model::{Generation, OffloadKind};
use offload_formats::registration::sycl;
use offload_formats::{intel_spirv, offload_binary};

/// Returns the images of an OpenMP payload, which are of one generation.
pub(super) fn openmp(images: &[&Linked], session: &Session) -> Result<Vec<PayloadImage>> {
    images.iter().map(|image| package(image, session)).collect()
}

fn package(image: &Linked, session: &Session) -> Result<PayloadImage> {
    let mut body = image.path.clone();
    if image.target.is_intel_spirv() {
        let spirv = std::fs::read(&body)
            .with_context(|| format!("cannot read the linked image `{}`", body.display()))?;
        if !spirv.is_empty() {
            body = session
                .scratch
                .path(&format!("{}.container", image.target.arch_name()), "img")?;
            std::fs::write(&body, intel_spirv::wrap_intel_spirv(&spirv))
                .with_context(|| format!("cannot write `{}`", body.display()))?;
        }
    }
    let file = Some(body.clone());
    let bare = Rope::of_file(body)
        .with_context(|| format!("the device link for {} wrote no image", image.target))?;
    let target = Some((image.triple.clone(), image.target.arch.clone()));
    if image.generation == Generation::Llvm14 {
        return Ok(PayloadImage {
            target,
            ..PayloadImage::whole(bare, file)
        });
    }
    let strings = [
        ("triple", image.triple.as_str()),
        ("arch", image.target.arch.as_str()),
    ];
    let frame = offload_binary::frame(
        image.image_kind,
        OffloadKind::OpenMp as u16,
        0,
        &strings,
        bare.size(),
    );
    let start = frame.head.len() as u64;
    let image = start..start + bare.size();
    let mut contents = Rope::default();
    contents.push_bytes(frame.head);
    contents.append(bare);
    contents.pad_to(frame.total_size);
    Ok(PayloadImage {
        contents,
        image,
        file,
        target,
    })
}

/// Returns the images of a SYCL payload; as one file with `as_one`.
pub(super) fn sycl(images: &[&Linked], as_one: bool) -> Result<Vec<PayloadImage>> {
    if as_one {
        let files: Vec<&Path> = images.iter().map(|image| image.path.as_path()).collect();
        return Ok(vec![PayloadImage::whole(sycl_binary(&files)?, None)]);
    }
    let files = images.iter().map(|image| {
        Ok(PayloadImage::whole(
            Rope::of_file(image.path.clone())?,
            Some(image.path.clone()),
        ))
    });
    files.collect()
}

/// Returns one OffloadBinary with all images in the files of SYCL's device linker.
pub(crate) fn sycl_binary(files: &[&Path]) -> Result<Rope> {
    let opened = files
        .iter()
        .map(|file| Ok((*file, Bytes::of(file)?)))
        .collect::<Result<Vec<_>>>()?;
    if opened.iter().all(|(_, bytes)| bytes.as_slice().is_empty()) {
        // A dry run leaves empty files.
        return Ok(Rope::default());
    }
    let mut images = Vec::new();
    for (file, bytes) in &opened {
        let read = offload_binary::read_all(bytes.as_slice())
            .with_context(|| format!("cannot read the linked image `{}`", file.display()))?;
        images.extend(read.into_iter().map(|image| (*file, image)));
    }
    let (places, images): (Vec<&Path>, Vec<offload_binary::Image<'_>>) = images.into_iter().unzip();
    let (head, size) =
        sycl::binary_head(&images).context("the kernel names of the SYCL images exceed 4 GiB")?;
    let mut binary = Rope::default();
    binary.push_bytes(head);
    for (file, image) in places.into_iter().zip(images) {
        push_image(&mut binary, file, image);
    }
    binary.pad_to(size);
    Ok(binary)
}

/// Appends the bytes of an image in `file`. A decompressed image has no offset in the file.
pub(crate) fn push_image(contents: &mut Rope, file: &Path, image: offload_binary::Image<'_>) {
    match image.at {
        0 => contents.push_bytes(image.image.into_owned()),
        at => contents.push_file(file.to_path_buf(), at, image.image.len() as u64),
    }
}
