//! Device code of modules that register themselves: nvcc's relocatable code, and translation units
//! of HIP's old driver (`-fgpu-rdc --no-offload-new-driver`).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};

use super::{Code, DeviceImage, Form, object};
use crate::link::inputs::InputObject;
use offload_formats::bitcode;
use offload_formats::bundle::Id;
use offload_formats::error::Malformed;
use offload_formats::fatbin::{self, Entry, Kind};
use offload_formats::model::{OffloadKind, OffloadKinds, Origin, printable_name};
use offload_formats::nvcc::{self, HostUses};
use offload_formats::offload_sections::CUDA_PRELINKED;
use offload_formats::registration::fatbin::{HIP_IMAGE, ModuleCalls};

/// The limit on the size of decompressed code and of copies for link-time optimization, as a
/// multiple of the object's size. Compilers stay far below it.
const MOST_COPIES: u64 = 256;

/// The triple of code that nvcc compiled.
const TRIPLE: &str = "nvptx64-nvidia-cuda";

/// Returns the relocatable code of nvcc's modules in an ELF object: for each module and
/// architecture, a cubin, or a host object with code for link-time optimization. Also returns PTX,
/// which is linked if there is nothing better. `select` later drops modules that another device
/// link contains.
pub(super) fn cuda(index: usize, input_object: &InputObject) -> Result<Vec<DeviceImage<'_>>> {
    let origin = input_object.origin().in_section(CUDA_PRELINKED);
    let data = input_object.data();
    let placed = |fault: Malformed| anyhow!(fault).context(input_object.origin().to_string());
    let mut found = Vec::new();
    let mut left = MOST_COPIES.saturating_mul((data.len() as u64).max(1 << 20));
    let modules = nvcc::modules(data).map_err(placed)?;
    let uses = HostUses::read(data).map_err(placed)?;
    for module in modules {
        let (entries, fault) = fatbin::entries(module.fatbin);
        if let Some(fault) = fault {
            return Err(placed(fault.shifted(module.at)));
        }
        let ids: Arc<[String]> = Arc::from([module.id.to_owned()]);
        for entry in linkable(&entries) {
            let too_large = || anyhow!("{origin}: the code of its modules is too large");
            let mut take = |size: u64| -> Result<()> {
                left = left.checked_sub(size).ok_or_else(too_large)?;
                Ok(())
            };
            let bytes = match entry.kind {
                // nvlink reads such code only from host objects.
                Kind::LtoIr => {
                    take((entry.stored.len() + uses.size()) as u64)?;
                    let object = nvcc::lto_object(&module, entry, &uses);
                    Code::from(Cow::Owned(
                        object.map_err(|fault| placed(fault.shifted(module.at)))?,
                    ))
                }
                _ => Code::of_entry(entry, module.at),
            };
            take(bytes.packed_size())?;
            let form = match entry.kind {
                Kind::Ptx => Form::Ptx,
                Kind::LtoIr => Form::LtoObject,
                _ => Form::Code,
            };
            found.push(DeviceImage {
                input_object: index,
                origin: origin.clone(),
                triple: TRIPLE.to_owned(),
                arch: entry.arch.clone(),
                kinds: OffloadKinds::default().with(OffloadKind::Cuda),
                raw_section: false,
                modules: Some(Arc::clone(&ids)),
                form,
                debug: entry.debug,
                bytes,
            });
        }
    }
    Ok(found)
}

/// Returns the entries of a fatbinary that a device link may take, for each architecture at most
/// one with PTX and one other.
fn linkable<'e, 'a>(entries: &'e [Entry<'a>]) -> Vec<&'e Entry<'a>> {
    let mut best: BTreeMap<(&str, bool), &Entry<'a>> = BTreeMap::new();
    for entry in entries {
        let slot = best.get(&(entry.arch.as_str(), entry.kind == Kind::Ptx));
        let is_better = match entry.kind {
            // Code for link-time optimization is there only if the user compiled for it.
            Kind::LtoIr => slot.is_none_or(|known| known.kind != Kind::LtoIr),
            Kind::Elf | Kind::Ptx => slot.is_none(),
            Kind::Other(_) => false,
        };
        if is_better {
            best.insert((&entry.arch, entry.kind == Kind::Ptx), entry);
        }
    }
    best.into_values().collect()
}

/// Returns the IDs of an object's units, which HIP's old driver compiled.
pub(super) fn hip_units(input_object: &InputObject) -> Result<Arc<[String]>> {
    let facts = object::elf_facts(input_object.data())
        .with_context(|| input_object.origin().to_string())?;
    let names = facts.undefined.iter().map(|need| need.name.as_ref());
    let units = names.filter_map(|name| ModuleCalls::id_of(HIP_IMAGE, name).map(printable_name));
    Ok(units.collect())
}

/// Returns the code in a section of HIP's old driver: bitcode or an object, or several of them
/// after a relocatable link. `id`: the ID in the name of the section. `units`: the result of
/// `hip_units`. Bundles of other compilers, and the host's empty entry, are not device code here.
pub(super) fn hip<'a>(
    index: usize,
    origin: &Origin,
    id: &[u8],
    units: &Arc<[String]>,
    contents: &'a [u8],
) -> Vec<DeviceImage<'a>> {
    let id = String::from_utf8_lossy(id);
    let id = Id::parse(&id);
    if !["hip", "hipv4"].contains(&id.kind.as_str()) {
        return Vec::new();
    }
    let image = |bytes: &'a [u8]| DeviceImage {
        input_object: index,
        origin: origin.clone(),
        triple: id.triple.trim_end_matches('-').to_owned(),
        arch: id.target_id.clone(),
        kinds: OffloadKinds::default().with(OffloadKind::Hip),
        raw_section: false,
        modules: Some(Arc::clone(units)),
        form: Form::Code,
        debug: false,
        bytes: bytes.into(),
    };
    bitcode::split(contents).into_iter().map(image).collect()
}
