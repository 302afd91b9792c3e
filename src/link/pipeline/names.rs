//! Names of kernels and variables: stable names, and the names that host code registers.
//!
//! Stable names of OpenMP kernels (docs/explanation/stable-names.md): clang names kernels by the
//! file-system device number and the inode number of their source file, so the same source in
//! another checkout has other device code. Here, the device code of a link gets names that do not
//! depend on the place of a file before it is linked, and the program gets the same names after the
//! host link.
//!
//! Names are replaced only where every use of them is known. If that is impossible, the link keeps
//! the names of clang, and is correct all the same.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs::Metadata;
use std::sync::Arc;

use anyhow::Result;
use rayon::prelude::*;

use super::{HostLink, Link, Scanned};
use crate::args::Dialect;
use crate::args::settings::{KernelNames, LinkSettings};
use crate::link::device::{self, Linked};
use crate::link::host::Place;
use crate::link::inputs::{InputObject, Inputs, map_all, worth_threads};
use crate::link::scan::{self, Code, DeviceImage};
use crate::link::select::DeviceJob;
use offld_system::io::bytes::Bytes;
use offld_system::session::Session;
use offld_system::store::{Cache, Digest, Key, KeyBuilder, Scope};
use offld_system::threads;
use offload_formats::elf::rename as elf_names;
use offload_formats::error::Malformed;
use offload_formats::magic::{Magic, is_spirv, magic};
use offload_formats::model::{ObjectFormat, OffloadKind, printable_name};
use offload_formats::offload_entries::{ENTRY_PREFIX, OLD_ENTRY_PREFIX, is_registered};
use offload_formats::registration::read::{self, Entry};
use offload_formats::stable_names::{FileId, StableNames, Uses, file_ids, has_file_id};
use offload_formats::{bitcode, kernels, spirv};

/// The first LLVM whose offload entries have their names in a section of their own.
const FIRST_LLVM: u32 = 19;

/// Device code with stable names, and the names.
pub(super) struct StableCode<'a> {
    pub(super) names: Arc<StableNames>,
    /// The images with new names, by the address of the image that they replace.
    images: HashMap<*const DeviceImage<'a>, DeviceImage<'a>>,
}

impl<'a> StableCode<'a> {
    /// `jobs` with the images and kernels of this code.
    pub(super) fn jobs<'s>(&'s self, jobs: Vec<DeviceJob<'a>>) -> Vec<DeviceJob<'s>>
    where
        'a: 's,
    {
        let image = |old: &'a DeviceImage<'a>| -> &'s DeviceImage<'s> {
            self.images.get(&std::ptr::from_ref(old)).unwrap_or(old)
        };
        let is_renamed =
            |old: &&'a DeviceImage<'a>| self.images.contains_key(&std::ptr::from_ref(*old));
        let job = |job: DeviceJob<'a>| DeviceJob {
            stable_names: job.inputs.iter().any(is_renamed),
            inputs: job.inputs.into_iter().map(image).collect(),
            registered: job
                .registered
                .into_iter()
                .map(|name| renamed(name, &self.names))
                .collect(),
            target: job.target,
            generation: job.generation,
            kinds: job.kinds,
            modules: job.modules,
            is_open: job.is_open,
        };
        jobs.into_iter().map(job).collect()
    }
}

/// `name` with stable IDs.
fn renamed(name: String, names: &StableNames) -> String {
    match names.replaced(name.as_bytes()) {
        Some(new) => String::from_utf8(new.bytes).unwrap_or(name),
        None => name,
    }
}

/// The result of renaming the device code of a link, as a record of the cache. The code and the
/// names are its key.
#[derive(Default)]
struct Outcome {
    /// The digest of each image with stable names; none for an image without IDs.
    renamed: Vec<Option<Digest>>,
    /// The IDs that keep their text, because some image with them cannot be renamed.
    fixed: Vec<FileId>,
}

impl Outcome {
    /// The record: a digest for each image, zeros for none, and the fixed IDs as text.
    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for digest in &self.renamed {
            bytes.extend(digest.as_ref().map_or([0; 32], |digest| *digest.bytes()));
        }
        let fixed: Vec<String> = self.fixed.iter().map(FileId::to_string).collect();
        bytes.extend(fixed.join(" ").into_bytes());
        bytes
    }

    /// Reads the record for `count` images.
    fn read(bytes: &[u8], count: usize) -> Option<Outcome> {
        let (digests, fixed) = bytes.split_at_checked(count.checked_mul(32)?)?;
        let (digests, _) = digests.as_chunks::<32>();
        let fixed = std::str::from_utf8(fixed).ok()?;
        Some(Outcome {
            renamed: digests
                .iter()
                .map(|digest| (*digest != [0; 32]).then(|| Digest::from_bytes(*digest)))
                .collect(),
            fixed: fixed
                .split_ascii_whitespace()
                .map(FileId::parse)
                .collect::<Option<_>>()?,
        })
    }
}

impl Link<'_> {
    /// Chooses stable names for the OpenMP code of `jobs`. There are none if the names of clang
    /// stay.
    ///
    /// # Errors
    /// `OFFLD_STABLE_NAMES` is invalid.
    pub(super) fn stable_code<'a>(
        &self,
        scanned: &Scanned<'a>,
        tables: &Tables,
        jobs: &[DeviceJob<'a>],
        host: &HostLink,
    ) -> Result<StableCode<'a>> {
        let none = || StableCode {
            names: Arc::default(),
            images: HashMap::new(),
        };
        if self.settings.run.kernel_names.get()? == KernelNames::Clang {
            return Ok(none());
        }
        // An image without an architecture can be an input of several jobs.
        let mut seen = HashSet::new();
        let images: Vec<&'a DeviceImage<'a>> = jobs
            .iter()
            .flat_map(|job| job.inputs.iter().copied())
            .filter(|image| image.kinds.contains(OffloadKind::OpenMp))
            .filter(|image| seen.insert(std::ptr::from_ref(*image)))
            .collect();
        let objects: BTreeSet<usize> = images.iter().map(|image| image.input_object).collect();
        let mut uses = Uses::default();
        for &object in &objects {
            tables
                .names_of(object, OffloadKind::OpenMp)
                .for_each(|name| uses.add(name.as_bytes()));
            // `tables` does not contain the entries of host bitcode.
            names_of_bitcode(&scanned.inputs.objects[object], &mut |name| uses.add(name));
        }
        if uses.is_empty() {
            return Ok(none());
        }
        if let Some(why) = self.names_obstacle(scanned, host) {
            if self.settings.run.verbose {
                self.session
                    .shell
                    .note(&format!("no stable names of OpenMP kernels: {why}"));
            }
            return Ok(none());
        }
        let fixed = fixed_ids(scanned, tables, &objects);
        let names = StableNames::choose(&uses, &fixed);
        if names.is_empty() {
            return Ok(none());
        }
        let renaming = Renaming {
            images: &images,
            uses: &uses,
            cache: self.background.caching.cache().ok(),
        };
        Ok(renaming.run(names, fixed))
    }

    /// The reason why the program cannot get other names after its link.
    fn names_obstacle(&self, scanned: &Scanned<'_>, host: &HostLink) -> Option<String> {
        if ObjectFormat::of(&host.triple) != ObjectFormat::Elf
            || self.settings.dialect != Dialect::Gnu
        {
            return Some(format!("the host {} is not supported", host.triple));
        }
        let is_input = |output: &Metadata| scanned.inputs.files.iter().any(|file| file.is(output));
        let in_objects = matches!(
            self.settings.run.kernel_names.get(),
            Ok(KernelNames::InObjects)
        );
        self.aside_obstacle().or_else(|| {
            let place = (!in_objects).then(|| Place::of(self.output, &is_input));
            place?.err()
        })
    }
}

/// Calls `add` for the names in the offload entries of `object`, if it is bitcode.
fn names_of_bitcode(object: &InputObject, add: &mut dyn FnMut(&[u8])) {
    const ENTRIES: [&str; 2] = [ENTRY_PREFIX, OLD_ENTRY_PREFIX];
    if object.kind == Magic::Bitcode {
        // If the names cannot be read, clang's names stay.
        let _ = bitcode::names_with_ids(object.data(), &mut |name| {
            let mut entries = ENTRIES.iter();
            if let Some(name) = entries.find_map(|prefix| name.strip_prefix(prefix.as_bytes())) {
                add(name);
            }
        });
    }
}

/// The IDs that must keep their text, because they are also in places that are not renamed: in
/// objects that register images already, and in entries of LLVM 18 and earlier. Also those in a name
/// that ends with another name, because linkers may store both as one string. `linked`: the objects
/// whose device code is linked.
fn fixed_ids(scanned: &Scanned<'_>, tables: &Tables, linked: &BTreeSet<usize>) -> BTreeSet<FileId> {
    let size = |object: &InputObject| object.data().len();
    let each = map_all(&scanned.inputs.objects, size, |index, object| {
        EntryNames::of(object, linked.contains(&index), &|| {
            tables.names_of(index, OffloadKind::OpenMp)
        })
    });
    let plain = Ends::of(each.iter().flat_map(|names| &names.plain));
    let mut fixed: BTreeSet<FileId> = each.iter().flat_map(|names| names.fixed.clone()).collect();
    let mut add_joined = |name: &[u8]| {
        if plain.has_end_of(name) {
            fixed.extend(file_ids(name).map(|(_, id)| id));
        }
    };
    for &index in linked {
        let own = tables.names_of(index, OffloadKind::OpenMp);
        own.for_each(|name| add_joined(name.as_bytes()));
        names_of_bitcode(&scanned.inputs.objects[index], &mut add_joined);
    }
    fixed
}

/// Names that linkers may store as the ends of other names.
#[derive(Default)]
struct Ends<'n> {
    names: HashSet<&'n [u8]>,
    /// Their lengths. There are few, so a lookup is fast.
    lengths: BTreeSet<usize>,
}

impl<'n> Ends<'n> {
    fn of(names: impl Iterator<Item = &'n Vec<u8>>) -> Self {
        let mut ends = Ends::default();
        for name in names {
            ends.names.insert(name);
            ends.lengths.insert(name.len());
        }
        ends
    }

    /// Whether `name` ends with one of the names.
    fn has_end_of(&self, name: &[u8]) -> bool {
        let mut lengths = self.lengths.range(1..name.len().max(1));
        lengths.any(|length| self.names.contains(&name[name.len() - length..]))
    }
}

/// The names in the offload entries of an object.
#[derive(Default)]
struct EntryNames {
    /// The IDs that must keep their text.
    fixed: Vec<FileId>,
    /// The names without IDs, of variables.
    plain: Vec<Vec<u8>>,
}

impl EntryNames {
    /// Reads those of `object`. `names`: the names that its host code registers.
    fn of<'n, N: Iterator<Item = &'n str>>(
        object: &InputObject,
        is_linked: bool,
        names: &dyn Fn() -> N,
    ) -> EntryNames {
        fn ids(name: &[u8]) -> impl Iterator<Item = FileId> {
            file_ids(name).map(|(_, id)| id)
        }
        let mut all = EntryNames::default();
        match (object.kind, is_linked) {
            (Magic::Elf, _) => {
                let known = elf_names::entry_names(object.data()).unwrap_or_default();
                all.plain = known
                    .iter()
                    .filter(|name| !name.is_empty() && !has_file_id(name))
                    .map(|name| name.to_vec())
                    .collect();
                if is_linked {
                    let known: HashSet<&[u8]> = known.into_iter().collect();
                    let own: HashSet<&[u8]> = names().map(str::as_bytes).collect();
                    // Names in other sections, and those of images that are registered already.
                    let others = known.symmetric_difference(&own);
                    all.fixed = others.flat_map(|name| ids(name)).collect();
                } else {
                    all.fixed = known.into_iter().flat_map(ids).collect();
                }
            }
            (Magic::Bitcode, is_linked) => {
                let llvm = bitcode::producer_major(object.data());
                let is_fixed = llvm.is_none_or(|llvm| llvm < FIRST_LLVM) || !is_linked;
                names_of_bitcode(object, &mut |name| {
                    if !has_file_id(name) {
                        all.plain.push(name.to_vec());
                    } else if is_fixed {
                        all.fixed.extend(ids(name));
                    }
                });
            }
            _ => all.fixed = names().flat_map(|name| ids(name.as_bytes())).collect(),
        }
        all
    }
}

/// The renaming of the device code of a link.
struct Renaming<'r, 'a> {
    images: &'r [&'a DeviceImage<'a>],
    uses: &'r Uses,
    cache: Option<&'r Arc<Cache>>,
}

impl<'a> Renaming<'_, 'a> {
    /// Renames with `names`, which exclude the IDs `fixed`; or with fewer names, if some code cannot
    /// be renamed.
    fn run(&self, names: StableNames, fixed: BTreeSet<FileId>) -> StableCode<'a> {
        let key = self.cache.map(|_| self.key(&names));
        if let Some((cache, key)) = self.cache.zip(key)
            && let Some(known) = self.recorded(cache, key, &names, &fixed)
        {
            return known;
        }
        let (code, outcome) = self.renamed(names, fixed);
        if let Some((cache, key)) = self.cache.zip(key) {
            let (own, record) = (Arc::clone(cache), outcome.to_bytes());
            // Without the record, the next link renames again.
            cache.wait_with(move || drop(own.put_record(key, &record, Scope::Local)));
        }
        code
    }

    /// Whether threads rename faster. Renaming costs more per byte than searching, so the limit is
    /// lower than in `worth_threads`.
    fn is_worth_threads(&self) -> bool {
        const FEW: usize = 256 << 10;
        let bytes: usize = self.images.iter().map(|image| image.bytes.len()).sum();
        bytes > FEW
    }

    /// The key of the [`Outcome`].
    fn key(&self, names: &StableNames) -> Key {
        let mut key = KeyBuilder::default();
        key.add("stable names 2");
        for (id, new) in names.iter() {
            key.add(id.device.unwrap_or_default().to_le_bytes())
                .add(id.inode.to_le_bytes())
                .add(new);
        }
        let contents: Vec<&[u8]> = self.images.iter().map(|image| &*image.bytes).collect();
        if worth_threads(contents.iter().map(|bytes| bytes.len())) {
            let digests = threads::in_parallel(|| Digest::of_all(&contents));
            digests.iter().for_each(|digest| {
                key.add(digest.bytes());
            });
        } else {
            contents.iter().for_each(|bytes| {
                key.add(bytes);
            });
        }
        key.key()
    }

    /// The code by the record of an earlier link. Its images are renamed only if a device link
    /// reads them.
    fn recorded(
        &self,
        cache: &Cache,
        key: Key,
        names: &StableNames,
        fixed: &BTreeSet<FileId>,
    ) -> Option<StableCode<'a>> {
        let record = cache.record(key, Scope::Local)?;
        let outcome = Outcome::read(&record, self.images.len())?;
        let names = if outcome.fixed.is_empty() {
            names.clone()
        } else {
            let fixed = fixed.iter().copied().chain(outcome.fixed).collect();
            StableNames::choose(self.uses, &fixed)
        };
        let names = Arc::new(names);
        let mut images = HashMap::new();
        for (image, digest) in self.images.iter().zip(outcome.renamed) {
            if let Some(digest) = digest {
                let code = Code::renamed(&image.bytes, &names, rename_code, digest, None);
                images.insert(std::ptr::from_ref(*image), image.with_code(code));
            }
        }
        Some(StableCode { names, images })
    }

    fn renamed(
        &self,
        mut names: StableNames,
        mut fixed: BTreeSet<FileId>,
    ) -> (StableCode<'a>, Outcome) {
        let before = fixed.clone();
        let new = loop {
            let rename = |image: &&'a DeviceImage<'a>| {
                let new = rename_code(&image.bytes, &names)?;
                Ok::<_, Malformed>(new.map(|new| (Digest::of(&new), new)))
            };
            let new: Vec<_> = if self.is_worth_threads() {
                threads::in_parallel(|| self.images.par_iter().map(rename).collect())
            } else {
                self.images.iter().map(rename).collect()
            };
            let failed = self.images.iter().zip(&new).filter(|(_, new)| new.is_err());
            let ids: BTreeSet<FileId> = failed
                .flat_map(|(image, _)| ids_of_code(&image.bytes, self.uses))
                .collect();
            if ids.is_subset(&fixed) {
                break new;
            }
            fixed.extend(ids);
            names = StableNames::choose(self.uses, &fixed);
        };
        let mut outcome = Outcome {
            renamed: Vec::new(),
            fixed: fixed.difference(&before).copied().collect(),
        };
        let names = Arc::new(names);
        let mut images = HashMap::new();
        for (image, new) in self.images.iter().zip(new) {
            let new = new.ok().flatten();
            outcome
                .renamed
                .push(new.as_ref().map(|(digest, _)| *digest));
            if let Some((digest, new)) = new {
                let code = Code::renamed(&image.bytes, &names, rename_code, digest, Some(new));
                images.insert(std::ptr::from_ref(*image), image.with_code(code));
            }
        }
        (StableCode { names, images }, outcome)
    }
}

/// `code` with stable names; none if it has no ID to replace.
///
/// # Errors
/// It is damaged, or of a form in which names cannot be replaced.
fn rename_code(code: &[u8], names: &StableNames) -> Result<Option<Vec<u8>>, Malformed> {
    match magic(code) {
        Magic::Bitcode => bitcode::rename(code, names),
        Magic::Elf => elf_names::rename(code, names),
        _ if is_spirv(code) => spirv::rename(code, names),
        _ => Err(Malformed::new(
            "a form of device code without stable names",
            0,
        )),
    }
}

/// The IDs of source files in `code`, or all those in `uses` if they cannot be found.
fn ids_of_code(code: &[u8], uses: &Uses) -> BTreeSet<FileId> {
    let mut ids = BTreeSet::new();
    let mut add = |name: &[u8]| ids.extend(file_ids(name).map(|(_, id)| id));
    let found = match magic(code) {
        Magic::Bitcode => bitcode::names_with_ids(code, &mut add),
        Magic::Elf => elf_names::names_of_symbols(code, &mut add),
        _ if is_spirv(code) => spirv::names(code, &mut add),
        _ => Err(Malformed::new(
            "a form of device code without stable names",
            0,
        )),
    };
    match found {
        Ok(()) => ids,
        Err(_) => uses.ids().collect(),
    }
}

// Kernels and variables that host code registers by name. Device links must not drop them, and
// every image must define them: an image that lacks one fails only when the program runs, and
// OpenMP then ends the program.

/// A name that the host code of one object registers.
struct Registered {
    name: String,
    kinds: Vec<&'static str>,
    is_kernel: bool,
}

impl Registered {
    /// Whether the name is for the runtime `kind`.
    fn is_for(&self, kind: OffloadKind) -> bool {
        self.kinds.is_empty() || self.kinds.contains(&kind.name())
    }
}

/// The names that host code registers, by the index of its object.
pub(super) struct Tables(BTreeMap<usize, Vec<Registered>>);

impl Tables {
    /// Reads the tables of all objects whose device code is linked, and fills in the names that
    /// each job must not drop. An object that cannot be read has no names here, because the host
    /// link reports it.
    pub(super) fn read(inputs: &Inputs, jobs: &mut [DeviceJob<'_>]) -> Tables {
        let images = || {
            jobs.iter()
                .flat_map(|job| &job.inputs)
                .filter(|image| image.kinds.iter().next().is_some())
        };
        let objects: BTreeSet<usize> = images().map(|image| image.input_object).collect();
        let table = |&object: &usize| (object, registered(inputs.objects[object].data()));
        let all = if worth_threads(
            objects
                .iter()
                .map(|&object| inputs.objects[object].data().len()),
        ) {
            threads::in_parallel(|| objects.par_iter().map(table).collect())
        } else {
            objects.iter().map(table).collect()
        };
        let tables = Tables(all);
        for job in jobs {
            let own = tables
                .registered_for(job)
                .map(|(_, registered)| registered.name.clone())
                .collect();
            job.registered = own;
        }
        tables
    }

    /// The names that host code of `object` registers for the runtime `kind`.
    pub(super) fn names_of(&self, object: usize, kind: OffloadKind) -> impl Iterator<Item = &str> {
        let own = self.0.get(&object).into_iter().flatten();
        own.filter(move |own| own.is_for(kind))
            .map(|own| own.name.as_str())
    }

    /// Puts stable names into the tables.
    pub(super) fn rename(&mut self, names: &StableNames) {
        if names.is_empty() {
            return;
        }
        for registered in self.0.values_mut().flatten() {
            registered.name = renamed(std::mem::take(&mut registered.name), names);
        }
    }

    /// The kernels and variables registered with the image of `job`, each with its object.
    fn registered_for<'t>(
        &'t self,
        job: &'t DeviceJob<'_>,
    ) -> impl Iterator<Item = (usize, &'t Registered)> {
        let is_of_job = |registered: &Registered| {
            let kinds = job.kinds.iter().filter(|kind| *kind != OffloadKind::Sycl);
            registered.kinds.is_empty()
                || kinds
                    .map(OffloadKind::name)
                    .any(|kind| registered.kinds.contains(&kind))
        };
        let objects: BTreeSet<usize> = job.inputs.iter().map(|image| image.input_object).collect();
        let tables = objects
            .into_iter()
            .filter_map(|object| Some((object, self.0.get(&object)?)));
        tables
            .flat_map(|(object, table)| table.iter().map(move |own| (object, own)))
            .filter(move |(_, own)| is_of_job(own))
    }

    /// Warns of names that the image does not define although host code registers them or the
    /// command line requires them.
    pub(super) fn warn_of_missing(
        &self,
        jobs: &[DeviceJob<'_>],
        linked: &[Linked],
        inputs: &Inputs,
        settings: &LinkSettings,
        session: &Session,
    ) {
        if settings.run.dry_run || settings.device.embed_bitcode {
            return;
        }
        for (job, linked) in jobs.iter().zip(linked) {
            let Some(defined) = Bytes::of(&linked.path)
                .ok()
                .and_then(|image| scan::linked_symbols(image.as_slice()))
            else {
                continue;
            };
            let is_missing = |name: &str| !defined.contains(name.as_bytes());
            let mut missing: BTreeMap<&str, Missing> = BTreeMap::new();
            for (object, registered) in self
                .registered_for(job)
                .filter(|(_, registered)| is_missing(&registered.name))
            {
                let what = if registered.is_kernel {
                    NameKind::Kernel
                } else {
                    NameKind::Variable
                };
                let by = || Missing {
                    what,
                    by: format!("{} registers", inputs.objects[object].origin()),
                };
                missing.entry(&registered.name).or_insert_with(by);
            }
            let required = device::required_symbols(settings, &job.target);
            for name in required
                .iter()
                .filter(|name| job.target.is_nvptx() && is_missing(name))
            {
                let by = "the command line requires (-u)".to_owned();
                missing.entry(name).or_insert(Missing {
                    what: NameKind::Symbol,
                    by,
                });
            }
            if let Some(warning) = warning(&missing, job) {
                session.shell.warn(&warning);
            }
        }
    }
}

/// A name that an image does not define.
struct Missing {
    what: NameKind,
    /// The object or option that needs the name, with its verb.
    by: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum NameKind {
    Kernel,
    Variable,
    Symbol,
}

/// Returns the warning about the names `missing` in the image of `job`.
fn warning(missing: &BTreeMap<&str, Missing>, job: &DeviceJob<'_>) -> Option<String> {
    let (name, Missing { what, by }) = missing.iter().min_by_key(|(_, missing)| missing.what)?;
    let source = kernels::demangled(name)
        .map(|source| format!(" ({source})"))
        .unwrap_or_default();
    let what = match what {
        NameKind::Kernel => "kernel",
        NameKind::Variable => "variable",
        NameKind::Symbol => "symbol",
    };
    let more = match missing.len() {
        1 => String::new(),
        2 => " Another name is missing as well.".to_owned(),
        count => format!(" {} other names are missing as well.", count - 1),
    };
    Some(format!(
        "the image for {} lacks the {what} `{}`{source}, which {by}: a program that uses it on the device fails.{more} The device \
         link has dropped or hidden the {what}. Give it default visibility, and check the device linker's --version-script, \
         --exclude-libs and --gc-sections",
        job.target,
        printable_name(name.as_bytes())
    ))
}

/// Returns the names that the host code in an object registers.
fn registered(data: &[u8]) -> Vec<Registered> {
    let Ok(tables) = read::tables(data) else {
        return Vec::new();
    };
    // The images of other tables are registered already.
    let tables = tables
        .into_iter()
        .filter(|table| !is_registered(&table.section));
    let entries = tables.flat_map(|table| table.entries);
    let registered = |entry: Entry| {
        let is_kernel = entry.is_kernel();
        let is_symbol = !entry.is_requirement();
        Some(Registered {
            name: entry.name.filter(|name| is_symbol && !name.is_empty())?,
            kinds: entry.kinds,
            is_kernel,
        })
    };
    entries.filter_map(registered).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_a_linker_may_join_are_found() {
        let others = [&b"l3"[..], b"other", b"a_decl_tgt_ref_ptr"].map(<[u8]>::to_vec);
        let ends = Ends::of(others.iter());
        let found = |name: &str| ends.has_end_of(name.as_bytes());
        assert!(found("__omp_offloading_fe00_1_main_l3"));
        assert!(found("_ZL2xs_9948ea_decl_tgt_ref_ptr"));
        assert!(!found("__omp_offloading_fe00_1_main_l33"));
        assert!(!found("l3"));
        assert!(!found(""));
    }

    #[test]
    fn outcomes_are_read_again() {
        let outcome = Outcome {
            renamed: vec![None, Some(Digest::of(b"x"))],
            fixed: vec![FileId {
                device: Some(0xfe00),
                inode: 7,
            }],
        };
        let bytes = outcome.to_bytes();
        let read = Outcome::read(&bytes, 2).unwrap();
        assert_eq!((read.renamed, read.fixed), (outcome.renamed, outcome.fixed));
        assert!(Outcome::read(&bytes, 3).is_none());
    }
}
