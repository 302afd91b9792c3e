//! Finds the device images in the host objects, and reads the symbols and entry tables of those
//! objects. All objects are searched for images in parallel, with results in command-line order. A
//! separate function reads symbol tables. Without images, it is called only if an object refers to
//! device code of HIP's old driver or registers images already, so that a link without device code
//! costs little.

mod modules;
pub(crate) mod object;

use std::borrow::Cow;
use std::collections::{BTreeSet, HashSet};
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use anyhow::{Context, Result, anyhow};
use rayon::prelude::*;

use crate::args::link_exe;
use crate::link::inputs::{InputObject, Inputs, map_all};
use offld_system::store::Digest;
use offld_system::threads;
use offload_formats::bitcode;
use offload_formats::coff::Directives;
use offload_formats::error::Malformed;
use offload_formats::fatbin::{Entry, Kind};
use offload_formats::magic::{self, Magic, magic};
use offload_formats::model::{Generation, OffloadKinds, Origin};
use offload_formats::offload_binary;
use offload_formats::offload_sections::{HIP_WRAPPERS, RELOCATABLE};
use offload_formats::stable_names::StableNames;

/// The form of device code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Code that the device link takes as it is.
    Code,
    /// PTX of nvcc. It is linked only if its module has nothing better for the target.
    Ptx,
    /// A host object with code of nvcc for link-time optimization, from [`nvcc::lto_object`].
    ///
    /// [`nvcc::lto_object`]: offload_formats::nvcc::lto_object
    LtoObject,
}

/// A device image in a host object.
#[derive(Debug)]
pub(crate) struct DeviceImage<'a> {
    /// The index of its object in `Inputs::objects`.
    pub input_object: usize,
    /// The file and section of the image, for error messages.
    pub origin: Origin,
    /// The device's triple, as stored.
    pub triple: String,
    /// The architecture or target ID, as stored; empty or `generic` for any.
    pub arch: String,
    /// The runtimes that can load the image.
    pub kinds: OffloadKinds,
    /// Whether this is an image of LLVM 14, which is a section without a header.
    pub raw_section: bool,
    /// The IDs of the modules in the host object that register their kernels and variables
    /// themselves. `None` if the object registers them with an entry table.
    pub modules: Option<Arc<[String]>>,
    /// The form of the code, which is known without decompressing it.
    pub form: Form,
    /// Whether nvcc compiled the image for debugging (`-G`).
    pub debug: bool,
    /// The bytes, borrowed from the input unless they were compressed or had to be read from
    /// bitcode.
    pub bytes: Code<'a>,
}

impl<'a> DeviceImage<'a> {
    /// This image with other code.
    pub(crate) fn with_code(&self, bytes: Code<'a>) -> DeviceImage<'a> {
        DeviceImage {
            input_object: self.input_object,
            origin: self.origin.clone(),
            triple: self.triple.clone(),
            arch: self.arch.clone(),
            kinds: self.kinds,
            raw_section: self.raw_section,
            modules: self.modules.clone(),
            form: self.form,
            debug: self.debug,
            bytes,
        }
    }

    /// Whether the code is a ThinLTO module.
    pub(crate) fn is_thin(&self) -> bool {
        magic::is_bitcode(&self.bytes) && bitcode::is_thin(&self.bytes).unwrap_or(false)
    }

    /// Decompresses the code, if it is compressed.
    ///
    /// # Errors
    /// The code is damaged.
    pub(crate) fn load(&self) -> Result<()> {
        let object = || Origin {
            section: None,
            ..self.origin.clone()
        };
        let loaded = self.bytes.load();
        loaded.map_err(|fault| anyhow!(fault).context(object().to_string()))
    }
}

/// The bytes of a device image. Compressed images are decompressed on first use, because most links
/// need few members of a large library. Stable names are put in on first use, too, because the
/// bytes are not needed for an image that is in the cache.
#[derive(Debug)]
pub(crate) enum Code<'a> {
    /// Bytes that are part of an input, or were made from one.
    Plain(Cow<'a, [u8]>),
    /// Bytes that are compressed in an entry of a fatbinary.
    Packed {
        entry: Box<Entry<'a>>,
        /// The offset of the fatbinary in the object, which is added to the offsets in errors.
        at: u64,
        /// The decompressed bytes, or the reason why there are none.
        plain: OnceLock<Result<Vec<u8>, Malformed>>,
    },
    /// Bytes that get stable names before the link.
    Renamed(Box<RenamedCode<'a>>),
}

/// Code that gets stable names before the link.
#[derive(Debug)]
pub(crate) struct RenamedCode<'a> {
    original: &'a Code<'a>,
    names: Arc<StableNames>,
    rename: Rename,
    /// The digest of the renamed bytes.
    digest: Digest,
    /// Whether the digest comes from the record of an earlier link, whose original may differ.
    is_recorded: bool,
    /// The renamed bytes, once they are needed.
    renamed: OnceLock<Vec<u8>>,
}

/// Returns code with stable names; none if it has no ID to replace.
pub(crate) type Rename = fn(&[u8], &StableNames) -> Result<Option<Vec<u8>>, Malformed>;

impl RenamedCode<'_> {
    /// The renamed bytes. They are empty if the original cannot be renamed any more, for example
    /// because the user has changed the mapped file.
    fn bytes(&self) -> &[u8] {
        let rename = || (self.rename)(self.original, &self.names);
        self.renamed
            .get_or_init(|| rename().ok().flatten().unwrap_or_default())
    }
}

impl<'a> Code<'a> {
    /// The code in `entry` of the fatbinary at `at` in its object.
    fn of_entry(entry: &Entry<'a>, at: u64) -> Self {
        if entry.method.is_none() {
            return Code::from(without_padding(entry.kind, entry.stored));
        }
        Code::Packed {
            entry: Box::new(entry.clone()),
            at,
            plain: OnceLock::new(),
        }
    }

    /// The code `original`, which `rename` gives stable `names` before the link. `digest`: the
    /// digest of the result. `renamed`: the result, if it is known.
    pub(crate) fn renamed(
        original: &'a Code<'a>,
        names: &Arc<StableNames>,
        rename: Rename,
        digest: Digest,
        renamed: Option<Vec<u8>>,
    ) -> Self {
        Code::Renamed(Box::new(RenamedCode {
            original,
            names: Arc::clone(names),
            rename,
            digest,
            is_recorded: renamed.is_none(),
            renamed: renamed.map_or_else(OnceLock::new, OnceLock::from),
        }))
    }

    /// The bytes for the device linker, which have stable names. All other code reads the bytes of
    /// the input, so that a link whose image is cached renames nothing.
    pub(crate) fn to_link(&self) -> &[u8] {
        match self {
            Code::Renamed(code) => code.bytes(),
            code => code,
        }
    }

    /// The digest of the bytes for the device linker, if it is known.
    pub(crate) fn known_digest(&self) -> Option<&Digest> {
        match self {
            Code::Renamed(code) if code.is_recorded && code.renamed.get().is_some() => None,
            Code::Renamed(code) => Some(&code.digest),
            _ => None,
        }
    }

    /// The size of the decompressed bytes by the entry's header; 0 for bytes that are not
    /// compressed.
    fn packed_size(&self) -> u64 {
        match self {
            Code::Plain(_) | Code::Renamed(_) => 0,
            Code::Packed { entry, .. } => entry.plain_size,
        }
    }

    /// Decompresses the bytes, if they are compressed.
    ///
    /// # Errors
    /// The bytes cannot be decompressed. Readers that do not call this function then get no bytes.
    pub(crate) fn load(&self) -> Result<(), Malformed> {
        match self {
            Code::Plain(_) | Code::Renamed(_) => Ok(()),
            Code::Packed { entry, at, plain } => {
                let unpacked = || {
                    let mut bytes = entry.plain()?.into_owned();
                    bytes.truncate(without_padding(entry.kind, &bytes).len());
                    Ok(bytes)
                };
                let plain = plain.get_or_init(unpacked);
                plain.as_ref().map(drop).map_err(|fault| fault.shifted(*at))
            }
        }
    }

    /// Returns the bytes as a copy that borrows nothing.
    fn into_owned(self) -> Code<'static> {
        Code::Plain(Cow::Owned(self.to_vec()))
    }
}

/// Returns code without the zeros that end and pad PTX in a fatbinary.
fn without_padding(kind: Kind, code: &[u8]) -> &[u8] {
    match kind {
        Kind::Ptx => {
            let end = code.iter().rposition(|byte| *byte != 0);
            &code[..end.map_or(0, |last| last + 1)]
        }
        _ => code,
    }
}

impl Deref for Code<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Code::Plain(bytes) => bytes,
            Code::Renamed(code) => code.original,
            Code::Packed { plain, .. } => match (self.load(), plain.get()) {
                (Ok(()), Some(Ok(bytes))) => bytes,
                _ => &[],
            },
        }
    }
}

impl<'a> From<Cow<'a, [u8]>> for Code<'a> {
    fn from(bytes: Cow<'a, [u8]>) -> Self {
        Code::Plain(bytes)
    }
}

impl<'a> From<&'a [u8]> for Code<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Code::Plain(Cow::Borrowed(bytes))
    }
}

/// Returns every device image in the inputs, in command-line order.
pub(crate) fn scan(inputs: &Inputs) -> Result<Vec<DeviceImage<'_>>> {
    let size = |input_object: &InputObject| input_object.data().len();
    let each = map_all(&inputs.objects, size, images_of);
    let mut all = Vec::new();
    for found in each {
        all.append(&mut found?);
    }
    decompress(&all, inputs)?;
    Ok(all)
}

/// Decompresses the code of objects. Code of archive members and PTX is left out, because most
/// links do not need it.
fn decompress(images: &[DeviceImage<'_>], inputs: &Inputs) -> Result<()> {
    /// The total decompressed size from which threads are faster.
    const MANY: u64 = 1 << 20;
    let is_needed = |image: &&DeviceImage<'_>| {
        image.form == Form::Code && !inputs.objects[image.input_object].lazy
    };
    let needed: Vec<&DeviceImage<'_>> = images.iter().filter(is_needed).collect();
    if needed
        .iter()
        .map(|image| image.bytes.packed_size())
        .sum::<u64>()
        < MANY
    {
        return needed.into_iter().try_for_each(DeviceImage::load);
    }
    let load = || needed.into_par_iter().map(DeviceImage::load);
    let loaded: Vec<Result<()>> = threads::in_parallel(|| load().collect());
    loaded.into_iter().collect()
}

/// Whether the symbols of archive members decide about device code: a member has device code, or
/// may define the functions that modules call to register themselves.
pub(crate) fn needs_members(images: &[DeviceImage<'_>], inputs: &Inputs) -> bool {
    images
        .iter()
        .any(|image| inputs.objects[image.input_object].lazy || image.modules.is_some())
}

/// Whether an object or archive member contains linked images that it registers, as the output of a
/// relocatable link does.
pub(crate) fn has_registered(inputs: &Inputs) -> bool {
    let mut objects = inputs
        .objects
        .iter()
        .filter(|object| object.kind == Magic::Elf);
    objects.any(|object| object::has_section(object.data(), RELOCATABLE))
}

/// Whether an object that is always linked refers to device code in the way of HIP's old driver.
pub(crate) fn has_hip_wrapper(inputs: &Inputs) -> bool {
    let mut objects = inputs
        .objects
        .iter()
        .filter(|object| !object.lazy && object.kind == Magic::Elf);
    objects.any(|object| object::has_section(object.data(), HIP_WRAPPERS))
}

/// Returns the host code that device code for `host_arch`, the host's CPU, may call: all members of
/// each archive that contains such device code. Each member is returned as an image without a kind,
/// with the triple of that device code.
pub(crate) fn host_code<'a>(
    inputs: &'a Inputs,
    found: &[DeviceImage<'_>],
    host_arch: &str,
) -> Vec<DeviceImage<'a>> {
    let mut triples: Vec<Option<&str>> = vec![None; inputs.files.len()];
    let is_host = |image: &&DeviceImage<'_>| image.triple.split('-').next() == Some(host_arch);
    for image in found
        .iter()
        .filter(is_host)
        .filter(|image| inputs.objects[image.input_object].lazy)
    {
        triples[inputs.objects[image.input_object].file] = Some(image.triple.trim_end_matches('-'));
    }
    let members = inputs
        .objects
        .iter()
        .enumerate()
        .filter(|(_, object)| object.lazy && object.kind == Magic::Elf);
    let code = members.filter_map(|(input_object, object)| {
        Some(DeviceImage {
            input_object,
            origin: object.origin(),
            triple: triples[object.file]?.to_owned(),
            arch: String::new(),
            kinds: OffloadKinds::default(),
            raw_section: false,
            modules: None,
            form: Form::Code,
            debug: false,
            bytes: object.data().into(),
        })
    });
    code.collect()
}

fn images_of(index: usize, input_object: &InputObject) -> Result<Vec<DeviceImage<'_>>> {
    match input_object.kind {
        Magic::Elf => object::elf_images(index, input_object),
        Magic::Coff => object::coff_images(index, input_object),
        Magic::Bitcode => bitcode_images(index, input_object),
        Magic::OffloadBinary => packaged(index, &input_object.origin(), input_object.data()),
        Magic::ElfShared | Magic::Archive | Magic::Text | Magic::Other => Ok(Vec::new()),
    }
}

/// Returns the device images that a module embeds.
fn bitcode_images(index: usize, input_object: &InputObject) -> Result<Vec<DeviceImage<'_>>> {
    let embedded = bitcode::embedded_images(input_object.data())
        .with_context(|| input_object.origin().to_string())?;
    let mut all = Vec::new();
    for image in embedded {
        let origin = input_object.origin().in_section(&image.section);
        match image.bytes {
            Cow::Borrowed(bytes) => {
                all.extend(in_bitcode_section(index, &origin, &image.section, bytes)?)
            }
            // The module stores these bytes in another encoding, so each image gets its own copy.
            Cow::Owned(bytes) => {
                let found = in_bitcode_section(index, &origin, &image.section, &bytes)?;
                all.extend(found.into_iter().map(|image| DeviceImage {
                    bytes: image.bytes.into_owned(),
                    ..image
                }));
            }
        }
    }
    Ok(all)
}

fn in_bitcode_section<'a>(
    index: usize,
    origin: &Origin,
    section: &str,
    bytes: &'a [u8],
) -> Result<Vec<DeviceImage<'a>>> {
    match object::llvm14_image(index, origin, section, bytes) {
        Some(found) => Ok(vec![found]),
        None => packaged(index, origin, bytes),
    }
}

/// Returns the images in `data`, which is one or more concatenated OffloadBinaries. An image that
/// is itself an OffloadBinary is replaced by the images in it.
pub(crate) fn packaged<'a>(
    input_object: usize,
    origin: &Origin,
    data: &'a [u8],
) -> Result<Vec<DeviceImage<'a>>> {
    let images = offload_binary::read_nested(data).with_context(|| origin.to_string())?;
    let found = images.into_iter().map(|image| {
        let (triple, arch) = (image.triple().into_owned(), image.arch().into_owned());
        let kinds = OffloadKinds::from_stored(image.offload_kind, &triple);
        DeviceImage {
            input_object,
            origin: origin.clone(),
            triple,
            arch,
            kinds,
            raw_section: false,
            modules: None,
            form: Form::Code,
            debug: false,
            bytes: image.image.into(),
        }
    });
    Ok(found.collect())
}

/// Returns the default libraries that COFF objects name, in order, each once, without libraries
/// that an object excludes. Objects that cannot be read are ignored here: the scan reports them.
pub(crate) fn default_libraries(inputs: &Inputs) -> Vec<String> {
    let objects: Vec<&InputObject> = inputs
        .objects
        .iter()
        .filter(|input_object| input_object.kind == Magic::Coff)
        .collect();
    let each: Vec<Directives> = threads::in_parallel(|| {
        objects
            .par_iter()
            .map(|input_object| object::coff_directives(input_object.data()).unwrap_or_default())
            .collect()
    });
    let mut seen = HashSet::new();
    let mut names: Vec<String> = each
        .iter()
        .flat_map(|directives| &directives.default_libraries)
        .cloned()
        .collect();
    names.retain(|name| seen.insert(name.to_ascii_lowercase()));
    let without: Vec<&String> = each
        .iter()
        .flat_map(|directives| &directives.without_libraries)
        .collect();
    names.retain(|name| {
        !without
            .iter()
            .any(|other| link_exe::is_left_out(name.as_ref(), other.as_ref()))
    });
    names
}

/// Symbols and entry table of a host object, which decide which archive members the host link
/// extracts and how images are registered.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct HostFacts<'a> {
    /// The global symbols that the object defines.
    pub defined: Vec<Definition<'a>>,
    /// The symbols that the object needs from others.
    pub undefined: Vec<Need<'a>>,
    /// The generation of the entry table, if there is one.
    pub generation: Option<Generation>,
    /// The generation of the entry table with the section name of LLVM 20 and earlier. Set only if
    /// the object also has a table with the current name. A relocatable link creates such objects
    /// from the output of several compilers.
    pub older_generation: Option<Generation>,
    /// Whether a symbol of the object is the `__start_` symbol of an entry table. Then it is
    /// another wrapper's object, which registers the images.
    pub refers_to_bounds: bool,
    /// Pairs of an undefined symbol and its replacement (COFF's `/alternatename:`).
    pub alternate_names: Vec<(Vec<u8>, Vec<u8>)>,
    /// The ELF or COFF machine of the object, if it has one.
    pub machine: Option<Machine>,
    /// The control-flow protection that the object is compatible with
    /// (`offload_formats::elf::notes`). None for bitcode, whose protection is not known before
    /// it is compiled.
    pub protection: Option<u32>,
}

impl HostFacts<'_> {
    /// Returns the generations of all entry tables of the object.
    pub(crate) fn generations(&self) -> impl Iterator<Item = Generation> {
        self.generation.into_iter().chain(self.older_generation)
    }
}

/// A symbol that an object defines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Definition<'a> {
    /// Its name.
    pub name: Cow<'a, [u8]>,
    /// Whether another definition replaces this one: it is weak or common.
    pub weak: bool,
    /// A common symbol (`int x;` in older C): linkers prefer a definition with a value.
    pub common: bool,
}

/// A symbol that an object needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Need<'a> {
    /// Its name.
    pub name: Cow<'a, [u8]>,
    /// Whether the symbol may stay undefined.
    pub weak: bool,
}

/// The machine of a native object, as far as the choice of a host triple needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Machine {
    /// ELF: machine number, 64-bit, little endian.
    Elf(::object::elf::Machine, bool, bool),
    /// COFF machine number.
    Coff(::object::pe::Machine),
}

/// Returns the facts of every input object, by index. `wanted`: whether to read the facts of
/// archive members as well.
pub(crate) fn host_facts(inputs: &Inputs, wanted: bool) -> Result<Vec<HostFacts<'_>>> {
    let each: Vec<Result<HostFacts<'_>>> = threads::in_parallel(|| {
        let objects = inputs.objects.par_iter();
        objects
            .map(|object| {
                if wanted || !object.lazy {
                    facts_of(object)
                } else {
                    Ok(HostFacts::default())
                }
            })
            .collect()
    });
    each.into_iter().collect()
}

/// Returns the symbols of the shared libraries among the inputs, by file. Libraries that cannot be
/// read are ignored here: the linker reports them.
pub(crate) fn shared_symbols(inputs: &Inputs) -> Vec<(usize, SharedSymbols)> {
    let libraries = inputs
        .files
        .iter()
        .enumerate()
        .filter(|(_, file)| file.kind == Magic::ElfShared);
    libraries
        .map(|(index, file)| {
            (
                index,
                object::shared_symbols(file.data()).unwrap_or_default(),
            )
        })
        .collect()
}

/// The dynamic symbols of a shared library.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SharedSymbols {
    /// The defined symbols. Symbols of an old version are omitted, because only programs that were
    /// linked with it find them.
    pub defines: Vec<Vec<u8>>,
    /// The undefined symbols.
    pub needs: Vec<Vec<u8>>,
}

fn facts_of(input_object: &InputObject) -> Result<HostFacts<'_>> {
    let data = input_object.data();
    let facts = match input_object.kind {
        Magic::Elf => object::elf_facts(data),
        Magic::Coff => object::coff_facts(data),
        Magic::Bitcode => bitcode_facts(data),
        _ => Ok(HostFacts::default()),
    };
    facts.with_context(|| input_object.origin().to_string())
}

/// Returns the symbols and entry table of a module.
fn bitcode_facts(data: &[u8]) -> Result<HostFacts<'_>> {
    let module = bitcode::symbols(data)?;
    let defined = module.defined.into_iter().map(|symbol| Definition {
        name: symbol.name,
        weak: symbol.weak,
        common: symbol.common,
    });
    let undefined = module.undefined.into_iter().map(|symbol| Need {
        name: symbol.name,
        weak: symbol.weak,
    });
    Ok(HostFacts {
        defined: defined.collect(),
        undefined: undefined.collect(),
        generation: module.entries,
        older_generation: module.older_entries,
        refers_to_bounds: module.refers_to_bounds,
        ..HostFacts::default()
    })
}

/// Returns the symbols that a runtime finds in the linked image `image`; none if its format has no
/// symbol table.
pub(crate) fn linked_symbols(image: &[u8]) -> Option<BTreeSet<Vec<u8>>> {
    match magic(image) {
        Magic::ElfShared => Some(
            object::shared_symbols(image)
                .ok()?
                .defines
                .into_iter()
                .collect(),
        ),
        Magic::Elf => {
            let names: BTreeSet<Vec<u8>> = object::elf_facts(image)
                .ok()?
                .defined
                .into_iter()
                .map(|symbol| symbol.name.into_owned())
                .collect();
            // An image without symbols was stripped, so nothing can be looked up.
            Some(names).filter(|names| !names.is_empty())
        }
        _ => None,
    }
}

/// Returns the symbols of a device image that is an ELF object or bitcode. Other formats have no
/// symbols here.
pub(crate) fn device_symbols<'f>(found: &'f DeviceImage<'_>) -> Result<HostFacts<'f>> {
    found.load()?;
    let data: &[u8] = &found.bytes;
    match magic(data) {
        Magic::Elf => object::elf_facts(data)
            .with_context(|| format!("{}: cannot read the device object", found.origin)),
        Magic::Bitcode => bitcode_facts(data)
            .with_context(|| format!("{}: cannot read the device bitcode", found.origin)),
        _ => Ok(HostFacts::default()),
    }
}
