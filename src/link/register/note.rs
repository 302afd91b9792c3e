//! Note in a registration object that names the linker of the device code. Cached objects have no
//! note, so that links with other compilers share them.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};

use super::RegisterContext;
use crate::formats::elf::link_note::{self, LinkedBy};
use crate::model::ObjectFormat;

/// Writes `object`, a registration object, to `path`. The first object of an ELF link gets the
/// note, unless the user turned it off.
pub(super) fn write(
    path: &Path,
    object: &[u8],
    first: bool,
    context: &RegisterContext<'_>,
) -> Result<()> {
    let describe = || format!("cannot write `{}`", path.display());
    let wanted = first
        && !context.request.no_note
        && ObjectFormat::of(context.host_triple) == ObjectFormat::Elf;
    if !wanted {
        return std::fs::write(path, object).with_context(describe);
    }
    let by = LinkedBy::this(context.device_compiler);
    let noted = link_note::add(object, &by)
        .with_context(|| format!("cannot add a note to `{}`", path.display()))?;
    let rest = object.get(noted.head.len()..).unwrap_or_default();
    let gap = (noted.tail_at as usize).saturating_sub(object.len());
    let mut out = File::create(path).with_context(describe)?;
    for part in [&noted.head, rest, &vec![0; gap], &noted.tail] {
        out.write_all(part).with_context(describe)?;
    }
    Ok(())
}
