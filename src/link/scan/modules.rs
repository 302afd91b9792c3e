//! Device code of modules that register themselves: nvcc's relocatable code, and translation units of
//! HIP's old driver (`-fgpu-rdc --no-offload-new-driver`).

use std::borrow::Cow;
use std::collections::BTreeMap;

use anyhow::{Context, Result, anyhow};

use super::{DeviceImage, object};
use crate::link::inputs::InputObject;
use offload_formats::bundle::Id;
use offload_formats::error::Malformed;
use offload_formats::fatbin::{self, Entry, Kind};
use offload_formats::model::{OffloadKind, OffloadKinds, Origin, printable_name};
use offload_formats::nvcc::{self, Module};
use offload_formats::offload_sections::CUDA_PRELINKED;
use offload_formats::registration::fatbin::HIP_IMAGE;

/// The triple of code that nvcc compiled.
const TRIPLE: &str = "nvptx64-nvidia-cuda";

/// Returns the relocatable code of nvcc's modules in an ELF object: for each module and architecture, a
/// cubin, or a host object with code for link-time optimization. An object whose device code is linked
/// already has none: it defines the functions that its modules call.
pub(super) fn cuda(index: usize, input_object: &InputObject) -> Result<Vec<DeviceImage<'_>>> {
    let origin = input_object.origin().in_section(CUDA_PRELINKED);
    let mut found = Vec::new();
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
            let bytes = code(input_object.data(), &module, at, entry).map_err(|fault| {
                let fault = fault.shifted(module.at);
                anyhow!(fault).context(origin.to_string())
            })?;
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
    let units = names.filter_map(|name| {
        let unit = name.strip_prefix(HIP_IMAGE.as_bytes())?;
        let unit = match unit {
            [] => unit,
            [b'_', unit @ ..] => unit,
            _ => return None,
        };
        Some(printable_name(unit))
    });
    Ok(Some(DeviceImage {
        input_object: index,
        origin,
        triple: id.triple.trim_end_matches('-').to_owned(),
        arch: id.target_id,
        kinds: OffloadKinds::default().with(OffloadKind::Hip),
        raw_section: false,
        modules: Some(units.collect()),
        debug: false,
        bytes: Cow::Borrowed(contents),
    }))
}

/// Returns the code of the entry with the index `at` of a module's fatbinary, in the form that nvlink
/// reads.
fn code<'a>(
    object: &[u8],
    module: &Module<'a>,
    at: usize,
    entry: &Entry<'a>,
) -> Result<Cow<'a, [u8]>, Malformed> {
    if entry.kind == Kind::LtoIr {
        // No public tool reads the code itself.
        return nvcc::lto_object(object, module, at).map(Cow::Owned);
    }
    entry.plain()
}
