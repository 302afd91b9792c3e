//! Kernels and variables that host code registers by name. Device links must not drop them, and
//! every image must define them: an image that lacks one fails only when the program runs, and
//! OpenMP then ends the program.

use std::collections::{BTreeMap, BTreeSet};

use rayon::prelude::*;

use crate::args::settings::LinkSettings;
use crate::link::device::{self, Linked};
use crate::link::inputs::{Inputs, worth_threads};
use crate::link::scan;
use crate::link::select::DeviceJob;
use offld_system::io::bytes::Bytes;
use offld_system::session::Session;
use offld_system::threads;
use offload_formats::kernels;
use offload_formats::model::{OffloadKind, printable_name};
use offload_formats::offload_entries::is_registered;
use offload_formats::registration::read::{self, Entry};
use offload_formats::stable_names::StableNames;

use super::names::renamed;

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
