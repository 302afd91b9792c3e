//! kpack archives of a link (`--wrapper-kpack`). The host link writes a complete program. offld then
//! writes its HIP code into archives, and replaces the program last.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use super::Link;
use crate::args::settings::LinkSettings;
use offld_system::atomic_file::is_special;
use offld_system::io::file_slice::Spool;
use offld_system::io::outputs::Outputs;
use offload_files::edit::files::replace_with_attributes;
use offload_files::kpack::{self, Source};

const OPTION: &str = "--wrapper-kpack";

/// Checks the options for archives.
pub(super) fn check(settings: &LinkSettings) -> Result<()> {
    let conflict = if settings.host.relocatable {
        "-r, which writes an object"
    } else if settings.emit_fatbin_only {
        "--emit-fatbin-only, which writes a bundle"
    } else if settings.external_images.is_some() {
        "--wrapper-external-images, which writes other files"
    } else {
        return Ok(());
    };
    if settings.kpack {
        bail!("{OPTION} cannot be combined with {conflict}");
    }
    Ok(())
}

impl Link<'_> {
    /// Moves the HIP code of the output into archives.
    pub(super) fn write_packs(&self) -> Result<()> {
        let (settings, session, output) = (self.settings, self.session, self.output);
        if !settings.kpack || settings.run.dry_run {
            return Ok(());
        }
        let name = |name: Option<&std::ffi::OsStr>| {
            let name = name.and_then(|name| name.to_str()).map(str::to_owned);
            name.with_context(|| format!("{OPTION}: `{}` is not UTF-8", output.display()))
        };
        if is_special(output) {
            return Ok(());
        }
        // The linker may have written through a symlink, and the loader takes the real path.
        let output = &fs::canonicalize(output)
            .with_context(|| format!("cannot read `{}`", output.display()))?;
        let group = name(output.file_name())?;
        let source = Source {
            path: output.to_path_buf(),
            binary: group.clone(),
        };
        let mut spool = Spool::new(session);
        let packed = kpack::split(&[source], &group, session, &mut spool)?;
        let [program] = packed.hosts.as_slice() else {
            session.shell.warn(&format!(
                "{OPTION}: `{}` registers no HIP code",
                output.display()
            ));
            return Ok(());
        };
        let parent = output.parent().unwrap_or(Path::new(""));
        let archives = parent.join(kpack::DIRECTORY);
        let unwritable = || format!("cannot write `{}`", archives.display());
        fs::create_dir_all(&archives).with_context(unwritable)?;
        let mut outputs = Outputs::new(session);
        let mut names = Vec::new();
        for (arch, bytes) in &packed.archives {
            let path = archives.join(kpack::archive_name(&group, arch));
            bytes
                .copy_to(&mut outputs.create(&path)?)
                .with_context(|| format!("cannot write `{}`", path.display()))?;
            names.push(path);
        }
        outputs.commit()?;
        replace_with_attributes(output, &program.bytes, output, session)?;
        // The previous build may have had other architectures.
        for entry in fs::read_dir(&archives).with_context(unwritable)?.flatten() {
            let path = entry.path();
            if kpack::is_of_group(&path, &group) && !names.contains(&path) {
                fs::remove_file(&path)
                    .with_context(|| format!("cannot remove `{}`", path.display()))?;
            }
        }
        Ok(())
    }
}
