//! Parts that several commands share: `--only` and `--exclude` select files and members, `native`
//! selects this machine's devices, `--max-unpacked` limits decompressed data. Also the end of a
//! command: its report, its errors, its exit status.

use std::ffi::OsString;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueHint};

use crate::args::values::parse_size;
use crate::contents;
use crate::contents::selection::Selection;
use crate::error::{Error, Silent};
use crate::model::{OffloadKind, printable};
use crate::sys::native::{self, Machine};
use crate::sys::shell::{self, Shell};
use crate::target::{Selector, Target};

/// The options.
#[derive(Debug, Args)]
pub(super) struct Selected {
    /// Process only files and members of wheels, zip files and tar archives whose path or name
    /// matches; repeatable
    #[arg(long, value_name = "GLOB", value_hint = ValueHint::Other)]
    only: Vec<String>,
    /// Skip files and members whose path or name matches; repeatable
    #[arg(long, value_name = "GLOB", value_hint = ValueHint::Other)]
    exclude: Vec<String>,
}

impl Selected {
    pub(super) fn selection(&self) -> Result<Arc<Selection>> {
        Ok(Arc::new(Selection::new(&self.only, &self.exclude)?))
    }

    /// Fails if a pattern of `--only` matched nothing, and warns of unmatched patterns of
    /// `--exclude`.
    pub(super) fn check(selection: &Selection, shell: &Shell) -> Result<()> {
        if let Some(pattern) = selection.unmatched_only().next() {
            return Err(Error::usage(format!(
                "no file or member matches `{}` of --only",
                printable(pattern)
            ))
            .into());
        }
        for pattern in selection.unmatched_exclude() {
            shell.warn(&format!(
                "no file or member matches `{}` of --exclude",
                printable(pattern)
            ));
        }
        Ok(())
    }
}

/// Parses the value of `--max-unpacked`.
pub(super) fn max_unpacked(size: Option<&OsString>) -> Result<u64> {
    size.map_or(Ok(contents::Options::default().max_unpacked), |size| {
        parse_size(size).context("--max-unpacked")
    })
}

/// Returns the devices of this machine that `selector` selects. A GPU selector without a matching
/// GPU is an error.
pub(super) fn native(selector: &Selector) -> Result<Vec<Target>> {
    let machine = Machine::read(&native::root())?;
    let kind = selector.kind();
    let amd = machine
        .amd
        .iter()
        .map(|name| Target::new("amdgcn-amd-amdhsa", name));
    let nvidia = machine
        .nvidia
        .iter()
        .map(|name| Target::new("nvptx64-nvidia-cuda", name));
    let cpu = Target::new(&format!("{}-pc-linux-gnu", std::env::consts::ARCH), "");
    let all: Vec<Target> = match kind {
        Some(OffloadKind::Hip) => amd.collect(),
        Some(OffloadKind::Cuda) => nvidia.collect(),
        _ => amd.chain(nvidia).chain([cpu]).collect(),
    };
    if all.is_empty() {
        bail!("`{selector}`: no matching GPU on this machine");
    }
    Ok(all)
}

/// Prints a report, then `errors`. Fails with `status` unless it is 0.
pub(super) fn finish(
    text: &str,
    errors: impl IntoIterator<Item = impl AsRef<str>>,
    status: u8,
    shell: &Shell,
) -> Result<()> {
    let printed = shell::print(text);
    for error in errors {
        shell.error(error.as_ref());
    }
    printed?;
    match status {
        0 => Ok(()),
        status => Err(Silent { status }.into()),
    }
}
