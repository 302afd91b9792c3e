//! Device code of modules that register themselves: nvcc's relocatable code, and translation units of
//! HIP's old driver (`-fgpu-rdc --no-offload-new-driver`).

use std::borrow::Cow;
use std::collections::BTreeMap;

use anyhow::{Context, Result, anyhow};

use super::{Code, DeviceImage, object};
use crate::link::inputs::InputObject;
use offload_formats::bundle::Id;
use offload_formats::fatbin::{self, Entry, Kind};
use offload_formats::model::{OffloadKind, OffloadKinds, Origin, printable_name};
use offload_formats::nvcc;
use offload_formats::offload_sections::CUDA_PRELINKED;
use offload_formats::registration::fatbin::{HIP_IMAGE, ModuleCalls};

/// The limit on copies and decompressed code, in relation to the object. Compilers stay far below it.
const MOST_COPIES: usize = 256;

/// The triple of code that nvcc compiled.
const TRIPLE: &str = "nvptx64-nvidia-cuda";

/// Returns the relocatable code of nvcc's modules in an ELF object: for each module and architecture, a
/// cubin, or a host object with code for link-time optimization. An object whose device code is linked
/// already has none: it defines the functions that its modules call.
pub(super) fn cuda(index: usize, input_object: &InputObject) -> Result<Vec<DeviceImage<'_>>> {
    let origin = input_object.origin().in_section(CUDA_PRELINKED);
    let mut found = Vec::new();
    let mut left = MOST_COPIES.saturating_mul(input_object.data().len().max(1 << 20));
    for module in
        nvcc::modules(input_object.data()).with_context(|| input_object.origin().to_string())?
    {
        let (entries, fault) = fatbin::entries(module.fatbin);
        if let Some(fault) = fault {
            return Err(anyhow!(fault.shifted(module.at))).with_context(|| origin.to_string());
        }
        // By architecture: the entry to link, and its index.
        let mut best: BTreeMap<&str, (usize, &Entry<'_>)> = BTreeMap::new();
        for (at, entry) in entries.iter().enumerate() {
            // Code for link-time optimization is there only if the user compiled for it.
            let known = best.get(entry.arch.as_str());
            let is_better = match entry.kind {
                Kind::LtoIr => known.is_none_or(|(_, known)| known.kind != Kind::LtoIr),
                Kind::Elf => known.is_none(),
                Kind::Ptx | Kind::Other(_) => false,
            };
            if is_better {
                best.insert(&entry.arch, (at, entry));
            }
        }
        for (arch, (at, entry)) in best {
            let code = match entry.kind {
                // No public tool reads the code itself.
                Kind::LtoIr => nvcc::lto_object(input_object.data(), &module, at)
                    .map(|object| Code::from(Cow::Owned(object))),
                _ => Ok(Code::of_entry(entry)),
            };
            let bytes = code
                .map_err(|fault| anyhow!(fault.shifted(module.at)).context(origin.to_string()))?;
            // Members of archives are often not needed.
            if !input_object.lazy {
                load(&bytes, &origin, module.at)?;
            }
            if let Code::Plain(Cow::Owned(copy)) = &bytes {
                left = left
                    .checked_sub(copy.len())
                    .ok_or_else(|| anyhow!("{origin}: the code of its modules is too large"))?;
            }
            found.push(DeviceImage {
                input_object: index,
                origin: origin.clone(),
                triple: TRIPLE.to_owned(),
                arch: arch.to_owned(),
                kinds: OffloadKinds::default().with(OffloadKind::Cuda),
                raw_section: false,
                modules: Some(vec![module.id.to_owned()]),
                debug: entry.debug,
                bytes,
            });
        }
    }
    Ok(found)
}

/// Returns the code in a section of HIP's old driver: bitcode or an object. `id`: the ID in the name of
/// the section. Other compilers' bundles, and the host's empty entry, are no device code here.
pub(super) fn hip<'a>(
    index: usize,
    input_object: &'a InputObject,
    origin: Origin,
    id: &[u8],
    contents: &'a [u8],
) -> Result<Option<DeviceImage<'a>>> {
    let id = String::from_utf8_lossy(id);
    let id = Id::parse(&id);
    if !["hip", "hipv4"].contains(&id.kind.as_str()) || contents.is_empty() {
        return Ok(None);
    }
    let facts = object::elf_facts(input_object.data())
        .with_context(|| input_object.origin().to_string())?;
    let names = facts.undefined.iter().map(|need| need.name.as_ref());
    let units = names.filter_map(|name| ModuleCalls::id_of(HIP_IMAGE, name).map(printable_name));
    Ok(Some(DeviceImage {
        input_object: index,
        origin,
        triple: id.triple.trim_end_matches('-').to_owned(),
        arch: id.target_id,
        kinds: OffloadKinds::default().with(OffloadKind::Hip),
        raw_section: false,
        modules: Some(units.collect()),
        debug: false,
        bytes: contents.into(),
    }))
}

/// Decompresses the code of a module, whose fatbinary is at the offset `at` of its section.
fn load(code: &Code<'_>, origin: &Origin, at: u64) -> Result<()> {
    code.load()
        .map_err(|fault| anyhow!(fault.shifted(at)).context(origin.to_string()))
}
