//! Images in files beside the program (`--wrapper-external-images`). The files are written before
//! the host link. A file's name contains its digest, so new files do not replace those of the
//! previous program, which stay until the new program is complete.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::args::settings::LinkSettings;
use crate::link::payload::{Payload, PayloadImage};
use crate::link::register::RegisterContext;
use offld_system::atomic_file::{self, folder_of, is_special};
use offld_system::io::rope::Rope;
use offld_system::session::Session;
use offload_files::contents::external;
use offload_formats::external_images::{self, Devices, Digest, ExternalImage, Table};
use offload_formats::model::{ObjectFormat, OffloadKind};
use offload_formats::registration::ImageSection;
use offload_formats::target::Target;

/// The section of the tables.
pub(super) const SECTION: ImageSection = ImageSection {
    name: external_images::SECTION,
    align: external_images::ALIGN,
    listed: false,
};

/// The suffix of the default directory, after the name of the output.
const SUFFIX: &str = ".images";

/// The files of a link. If this is dropped without [`keep`](Self::keep), the new files of the default
/// directory are removed. Files in a directory that the user named are never removed.
#[derive(Debug, Default)]
pub(crate) struct ExternalFiles {
    /// The table of each payload, in their order.
    pub(super) tables: Vec<Vec<u8>>,
    /// Whether the files are in the default directory. Files in other directories are never removed,
    /// because other programs may use them.
    is_default: bool,
    /// The directory, if the link created it.
    new_directory: Option<PathBuf>,
    /// All files.
    files: Vec<PathBuf>,
    new_files: Vec<PathBuf>,
    /// The files of the previous program at the output's path.
    old_files: Vec<PathBuf>,
}

/// Writes the images of `payloads` to files, if the user asks for it.
pub(crate) fn external_files(
    payloads: &[Payload],
    context: &RegisterContext<'_>,
    session: &Session,
) -> Result<ExternalFiles> {
    let mut files = ExternalFiles::default();
    let Some(chosen) = &context.settings.external_images else {
        return Ok(files);
    };
    check(payloads, context)?;
    let directory = if chosen.as_os_str().is_empty() {
        let mut name = context.output.file_name().unwrap_or_default().to_owned();
        name.push(SUFFIX);
        PathBuf::from(name)
    } else {
        chosen.clone()
    };
    let parent = context.output.parent().unwrap_or(Path::new(""));
    let place = parent.join(&directory);
    let writes = !context.settings.run.dry_run && !is_special(context.output);
    if writes {
        // Linkers do not create the directory of the output either.
        let folder = folder_of(context.output);
        fs::metadata(folder).with_context(|| {
            format!(
                "cannot write `{}`: `{}`",
                context.output.display(),
                folder.display()
            )
        })?;
    }
    files.is_default = chosen.as_os_str().is_empty();
    if files.is_default && !is_special(context.output) {
        files.old_files = external::files_of(context.output);
    }
    let text = directory
        .to_str()
        .filter(|text| !text.contains('\0'))
        .with_context(|| format!("{OPTION}: `{}` is not UTF-8", directory.display()))?;
    let host_arch = context.host_triple.split('-').next().unwrap_or_default();
    for payload in payloads {
        let mut table = Table {
            kind: payload.kind,
            directory: text.to_owned(),
            images: Vec::new(),
        };
        for image in &payload.images {
            session.signals.check()?;
            let (contents, described) = described(payload.kind, image, host_arch)?;
            if writes {
                files.write(&place, &described.name, described.digest, &contents)?;
            }
            table.images.push(described);
        }
        let table = table.write().context("too many images for one program")?;
        files.tables.push(table);
    }
    Ok(files)
}

const OPTION: &str = "--wrapper-external-images";

/// Checks the options for images in files, before the device links run.
pub(crate) fn check_external(settings: &LinkSettings) -> Result<()> {
    if settings.external_images.is_none() {
        return Ok(());
    }
    if settings.host.relocatable {
        bail!("{OPTION} is for programs and libraries, and -r writes an object");
    }
    if settings.emit_fatbin_only {
        bail!("{OPTION} is for programs and libraries, and --emit-fatbin-only writes a fatbinary");
    }
    if settings.device.compress {
        bail!("{OPTION} writes images without compression: omit --compress");
    }
    Ok(())
}

/// Warns that `--wrapper-external-images` has no effect, because a link has no device code.
pub(crate) fn warn_of_no_files(settings: &LinkSettings, session: &Session) {
    if settings.external_images.is_some() {
        session.shell.warn(&format!(
            "{OPTION} has no effect: this link has no device code (HIP code without -fgpu-rdc is linked when it is compiled)"
        ));
    }
}

/// Checks that the images of this link can be in files.
fn check(payloads: &[Payload], context: &RegisterContext<'_>) -> Result<()> {
    let output = context.output;
    if output.is_symlink() {
        bail!(
            "{OPTION}: the output `{}` is a symlink, but the program looks for its images next to the file that the symlink points to: pass the path of that file to -o",
            output.display()
        );
    }
    let triple = context.host_triple;
    if ObjectFormat::of(triple) != ObjectFormat::Elf || !triple.contains("linux") {
        bail!("{OPTION} is for programs for Linux, not for {triple}");
    }
    for payload in payloads {
        if payload.kind == OffloadKind::Sycl {
            bail!("{OPTION}: images of SYCL cannot be in files");
        }
        if !payload.modules.is_empty() {
            bail!(
                "{OPTION}: code of {} cannot be in files, because its objects register it themselves",
                if payload.kind == OffloadKind::Cuda {
                    "nvcc"
                } else {
                    "HIP's old driver"
                }
            );
        }
    }
    Ok(())
}

/// Returns the contents of the file for `image`, and its row in the table.
fn described(
    kind: OffloadKind,
    image: &PayloadImage,
    host_arch: &str,
) -> Result<(Rope, ExternalImage)> {
    let contents = match &image.file {
        Some(file) => Rope::of_file(file.clone())?,
        None => image.contents.clone(),
    };
    let mut digest = Digest::default();
    contents
        .write_to(&mut digest)
        .context("cannot read a linked image")?;
    let digest = digest.finish();
    let (id, arch) = image.target.clone().context("an image without a target")?;
    let target = match kind {
        OffloadKind::OpenMp => Target::new(&id, &arch),
        OffloadKind::Hip if arch == "amdgcnspirv" => Target::new("spirv64-amd-amdhsa", &arch),
        OffloadKind::Hip => Target::new("amdgcn-amd-amdhsa", &arch),
        _ => Target::new("nvptx64-nvidia-cuda", &arch),
    };
    let arch = match target.target_id() {
        Some(id) if !id.is_empty() => id.into_owned(),
        _ => target.arch_name().to_owned(),
    };
    let extension = match kind {
        OffloadKind::Hip => "co",
        OffloadKind::Cuda => "fatbin",
        _ => "img",
    };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "+-_.".contains(c);
    let plain: String = arch
        .chars()
        .map(|c| if is_plain(c) { c } else { '_' })
        .collect();
    let described = ExternalImage {
        name: format!("{plain}-{digest:016x}.{extension}"),
        id,
        devices: Devices::of(&target, host_arch),
        arch,
        size: contents.size(),
        digest,
    };
    Ok((contents, described))
}

impl ExternalFiles {
    /// Writes a file, unless it exists already.
    fn write(&mut self, directory: &Path, name: &str, digest: u64, contents: &Rope) -> Result<()> {
        let path = directory.join(name);
        self.files.push(path.clone());
        if is_written(&path, digest) {
            return Ok(());
        }
        let is_new = !directory.exists();
        fs::create_dir_all(directory)
            .with_context(|| format!("cannot create the directory `{}`", directory.display()))?;
        if is_new {
            self.new_directory = Some(directory.to_path_buf());
        }
        if !path.exists() {
            self.new_files.push(path.clone());
        }
        atomic_file::replace(&path, |out| Ok(contents.write_at(out, 0)?))
            .with_context(|| format!("cannot write `{}`", path.display()))
    }

    /// Keeps the files, after the program is complete. In the default directory, removes the files that
    /// only the previous program used.
    pub(crate) fn keep(mut self) {
        self.new_files.clear();
        self.new_directory = None;
        let directory = self.files.first().and_then(|file| file.canonicalize().ok());
        let directory = directory.as_deref().and_then(Path::parent);
        for old in &self.old_files {
            let real = old.canonicalize();
            let is_here = real.is_ok_and(|real| real.parent() == directory);
            let name = old.file_name();
            let is_kept = self.files.iter().any(|file| file.file_name() == name);
            if is_here && !is_kept {
                let _ = fs::remove_file(old);
            }
        }
    }
}

impl Drop for ExternalFiles {
    fn drop(&mut self) {
        if !self.is_default {
            return;
        }
        for file in &self.new_files {
            let _ = fs::remove_file(file);
        }
        if let Some(directory) = &self.new_directory {
            let _ = fs::remove_dir(directory);
        }
    }
}

fn is_written(path: &Path, digest: u64) -> bool {
    let mut found = Digest::default();
    let read = File::open(path).and_then(|mut file| io::copy(&mut file, &mut found));
    read.is_ok() && found.finish() == digest
}
