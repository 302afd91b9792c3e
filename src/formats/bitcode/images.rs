//! Device images embedded in a host module, from two sources: globals that the metadata lists for
//! `.llvm.offloading`, and globals in the sections of LLVM 14. The names of those sections contain
//! the target.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::module::{Kind, Module};
use super::stream::{modules, unwrapped};
use super::{constants, metadata};
use crate::error::Malformed;
use crate::formats::offload_sections::{LONGEST_NAME, NAME, RELOCATABLE, is_longer};

/// The limit on the size of all images, as a multiple of the file's size. Equal globals share one
/// constant, so that a small file could need any amount of memory.
const MAX_SHARED: u64 = 16;

/// A device image embedded in a bitcode host object.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Embedded<'a> {
    /// The section in the object file: `.llvm.offloading` for OffloadBinaries, or LLVM 14's
    /// `.llvm.offloading.<triple>.<arch>[.<name>]` for a bare image.
    pub section: Arc<str>,
    /// The contents, borrowed from the file if they are stored contiguously.
    pub bytes: Cow<'a, [u8]>,
}

/// Returns the device images embedded in `bitcode`: the globals in the list, then those in sections
/// of LLVM 14, in the order of the module. Globals whose value is not a byte array are skipped.
/// Fails if `bitcode` is damaged or not bitcode.
pub fn embedded_images(bitcode: &[u8]) -> Result<Vec<Embedded<'_>>, Malformed> {
    let (stream, base) = unwrapped(bitcode)?;
    let mut found = Vec::new();
    let mut room = bitcode.len() as u64 * MAX_SHARED;
    let mut read = || {
        modules(stream)?
            .into_iter()
            .try_for_each(|module| add(Module::read(module)?, &mut room, &mut found))
    };
    read().map_err(|fault| fault.shifted(base))?;
    Ok(found)
}

fn add<'a>(
    module: Module<'a>,
    room: &mut u64,
    found: &mut Vec<Embedded<'a>>,
) -> Result<(), Malformed> {
    let listed: Arc<str> = NAME.into();
    let variable = |id: u64| {
        let global = usize::try_from(id)
            .ok()
            .and_then(|id| module.values.get(id))?;
        global.initializer.filter(|_| global.kind == Kind::Variable)
    };
    let mut wanted: Vec<(u64, Arc<str>)> = metadata::listed(&module)?
        .into_iter()
        .filter_map(|id| Some((variable(id)?, Arc::clone(&listed))))
        .collect();
    for global in &module.values {
        let section = module.section(global);
        if !is_longer(section) || section == RELOCATABLE.as_bytes() || global.kind != Kind::Variable
        {
            continue;
        }
        if section.len() > LONGEST_NAME {
            return Err(module
                .cursor
                .fault("a section of device code has a name of more than 4096 bytes"));
        }
        wanted.extend(
            global
                .initializer
                .map(|id| (id, Arc::from(String::from_utf8_lossy(section)))),
        );
    }
    if wanted.is_empty() {
        return Ok(());
    }
    let mut uses: BTreeMap<u64, u64> = BTreeMap::new();
    wanted
        .iter()
        .for_each(|(id, _)| *uses.entry(*id).or_default() += 1);
    let mut texts = constants::texts(&module, &uses.keys().copied().collect())?;
    for (id, text) in &texts {
        let all = uses
            .get(id)
            .map(|uses| uses.saturating_mul(text.len() as u64));
        let left = all.and_then(|all| room.checked_sub(all));
        *room = left.ok_or_else(|| module.cursor.fault("embedded images share their bytes"))?;
    }
    for (id, section) in wanted {
        let Some(left) = uses.get_mut(&id) else {
            continue;
        };
        *left -= 1;
        let contents = if *left > 0 {
            texts.get(&id).cloned()
        } else {
            texts.remove(&id)
        };
        found.extend(contents.map(|bytes| Embedded { section, bytes }));
    }
    Ok(())
}
