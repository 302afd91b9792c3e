//! Note in a registration object that names the linker of the device code. Cached objects have no
//! note, so that links with other compilers share them.

use std::path::Path;

use anyhow::{Context, Result};

use super::RegisterContext;
use crate::formats::compose::join;
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
        .and_then(|parts| join(object, &parts, &[]))
        .with_context(|| format!("cannot add a note to `{}`", path.display()))?;
    std::fs::write(path, noted).with_context(describe)
}
