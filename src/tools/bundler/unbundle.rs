//! Unbundles one input into one output per target (docs/spec/containers.md 2.11). A target gets the
//! code object with the same ID, otherwise the compatible one with the most specific ID (2.6). A
//! code object may be written for several targets (docs/spec/faults.md B13, B14).

use std::collections::HashMap;
use std::path::Path;

use anyhow::{Result, bail};

use super::container::{self, BundleEntry};
use super::list::hint;
use super::{Layout, Request, archive, layout, object, targets, verbose};
use crate::formats::bundle::{Id, Objects, compatibility};
use crate::io::file_slice::{FileSlice, Spool};
use crate::io::outputs::{Outputs, io_error};
use crate::io::rope::Rope;
use crate::sys::session::Session;
use crate::sys::shell::Shell;

pub(super) fn run(request: &Request, session: &Session) -> Result<()> {
    let ids = targets::read(&request.targets, request.task)?;
    let [path] = &request.inputs[..] else {
        bail!("only one input file supported in unbundling mode")
    };
    if request.outputs.len() != ids.len() {
        bail!("number of output files and targets should match in unbundling mode");
    }
    if request.file_type == "a" {
        return archive::unbundle(request, &ids, session);
    }
    let mut spool = Spool::new(session);
    let piece = FileSlice::open(path)?;
    let name = path.display().to_string();
    let (entries, whole) = match layout(&request.file_type)? {
        Layout::Text(comment) => {
            let (plain, compressed) = container::inflate(&piece, &name, &mut spool, session)?;
            verbose::read(request, &piece, &compressed, &session.shell);
            let plain = plain.into_piece(&mut spool)?;
            (
                container::text_entries(&plain, comment, &name)?,
                Rope::from(plain),
            )
        }
        other => {
            let found = container::read(&piece, &name, hint(other), "input", &mut spool, session)?;
            verbose::read(request, &piece, &found.compressed, &session.shell);
            (found.entries, found.whole)
        }
    };
    let chosen = choose(&entries, &ids, request, &session.shell);
    if !request.allow_missing {
        check_missing(&ids, &chosen)?;
    }
    if request.show_commands && chosen.iter().flatten().any(|entry| entry.is_host_mark()) {
        object::show_host(path, session);
        return Ok(());
    }
    let nothing = chosen.iter().all(Option::is_none);
    let mut outputs = Outputs::new(session);
    for ((id, chosen), output) in ids.iter().zip(&chosen).zip(&request.outputs) {
        let contents = match chosen {
            Some(entry) => Some(entry.contents()?),
            // A file without any match counts as the host's: a compiler without device code wrote
            // it.
            None => (nothing && id.kind == "host").then(|| whole.clone()),
        };
        write(&mut outputs, output, contents.as_ref())?;
    }
    outputs.commit()
}

fn write(outputs: &mut Outputs, path: &Path, contents: Option<&Rope>) -> Result<()> {
    let mut output = outputs.create_or_stdout(path)?;
    if let Some(contents) = contents {
        contents
            .copy_to(&mut output)
            .map_err(|error| io_error(path, &error))?;
    }
    Ok(())
}

/// Fails if targets lack a code object, and lists these targets, sorted.
fn check_missing(ids: &[Id], chosen: &[Option<&BundleEntry>]) -> Result<()> {
    let missing = ids
        .iter()
        .zip(chosen)
        .filter(|(_, chosen)| chosen.is_none());
    let mut missing: Vec<String> = missing.map(|(id, _)| id.to_string()).collect();
    missing.sort();
    match &missing[..] {
        [] => Ok(()),
        [one] => bail!("Can't find bundles for {one}"),
        [one, other] => bail!("Can't find bundles for {one} and {other}"),
        [most @ .., last] => bail!("Can't find bundles for {}, and {last}", most.join(", ")),
    }
}

/// Selects an entry for each target. If several fit equally well, the first one in the file wins.
fn choose<'e>(
    entries: &'e [BundleEntry],
    targets: &[Id],
    request: &Request,
    shell: &Shell,
) -> Vec<Option<&'e BundleEntry>> {
    let ids: Vec<Id> = entries.iter().map(BundleEntry::parsed_id).collect();
    if request.explain {
        explain(ids.iter(), targets, request, shell);
    }
    let mut counts: HashMap<&Id, usize> = HashMap::new();
    ids.iter()
        .for_each(|id| *counts.entry(id).or_default() += 1);
    let objects = Objects::new(&ids);
    let choose_one = |target| {
        let index = objects.best(target, request.hip_openmp_compatible)?;
        let chosen = ids.get(index)?;
        // A linked program contains the bundles of all its objects, so an ID may occur several
        // times.
        let others = counts.get(chosen).map_or(0, |count| count - 1);
        if others > 0 {
            shell.warn(&format!(
                "'{}' has {others} more code objects for {chosen}: the first is written",
                input(request)
            ));
        }
        entries.get(index)
    };
    targets.iter().map(choose_one).collect()
}

/// Prints every comparison, as `-debug-only=CodeObjectCompatibility` does.
pub(super) fn explain<'i>(
    objects: impl Iterator<Item = &'i Id>,
    targets: &[Id],
    request: &Request,
    shell: &Shell,
) {
    for object in objects {
        for target in targets {
            shell.line(
                &compatibility(object, target, request.hip_openmp_compatible).line(object, target),
            );
        }
    }
}

fn input(request: &Request) -> String {
    request
        .inputs
        .first()
        .map(|path| path.display().to_string())
        .unwrap_or_default()
}
