//! Unbundles archives of fat objects and bundles into one archive per target
//! (docs/spec/containers.md 2.12). Each archive gets all code objects that are compatible with its
//! target.

mod check;
mod members;
mod write;

use std::path::Path;

use anyhow::{Result, bail};

use super::container::{self, BundleEntry, Hint};
use super::{Request, matching, object, verbose};
use crate::formats::bundle::{Id, Objects};
use crate::io::file_slice::{FileSlice, Spool};
use crate::io::outputs::Outputs;
use crate::sys::session::Session;

/// A code object with the archive member that contains it.
struct MemberObject {
    /// The member's name.
    member: String,
    entry: BundleEntry,
    /// The parsed ID of the entry.
    id: Id,
}

/// Writes an archive of code objects for each of `ids`.
pub(super) fn unbundle(request: &Request, ids: &[Id], session: &Session) -> Result<()> {
    let [path] = &request.inputs[..] else {
        bail!("only one input file supported in unbundling mode")
    };
    let mut spool = Spool::new(session);
    let found = code_objects(request, path, &mut spool, session)?;
    if request.check_input_archive {
        check::composition(&found, path)?;
    }
    let chosen = choose(request, &found, ids, session);
    let missing = ids
        .iter()
        .zip(&chosen)
        .find(|(_, chosen)| chosen.is_empty());
    if let (Some((id, _)), false) = (missing, request.allow_missing) {
        bail!(
            "no compatible code object found for the target '{id}' in heterogeneous archive library: {}",
            path.display()
        );
    }
    if request.show_commands && show(&chosen, session) {
        return Ok(());
    }
    let mut outputs = Outputs::new(session);
    for (chosen, output) in chosen.iter().zip(&request.outputs) {
        let mut made = outputs.create_anew_or_stdout(output)?;
        write::archive(chosen, output, &mut made, &mut spool, session)?;
    }
    outputs.commit()
}

/// The code objects of all members, in order. Members without code objects, such as archives and
/// texts, are skipped.
fn code_objects(
    request: &Request,
    path: &Path,
    spool: &mut Spool,
    session: &Session,
) -> Result<Vec<MemberObject>> {
    let archive = FileSlice::open(path)?;
    let mut found = Vec::new();
    members::each(&archive, path, spool, |member, piece, spool| {
        let name = format!("{}({member})", path.display());
        let contents = container::read(piece, &name, Hint::Object, "code object", spool, session)?;
        verbose::read(request, piece, &contents.compressed, &session.shell);
        let of_member = |entry: BundleEntry| MemberObject {
            member: member.to_owned(),
            id: entry.parsed_id(),
            entry,
        };
        found.extend(contents.entries.into_iter().map(of_member));
        Ok(())
    })?;
    Ok(found)
}

/// The compatible code objects of each target.
fn choose<'f>(
    request: &Request,
    found: &'f [MemberObject],
    ids: &[Id],
    session: &Session,
) -> Vec<Vec<&'f MemberObject>> {
    let of_members = || found.iter().map(|one| &one.id);
    if request.explain {
        matching::explain(of_members(), ids, request, &session.shell);
    }
    let objects = Objects::new(of_members());
    let serving = |id| {
        objects
            .serving(id, request.hip_openmp_compatible)
            .into_iter()
            .map(|(at, _)| &found[at])
            .collect()
    };
    ids.iter().map(serving).collect()
}

/// Prints the commands that LLVM's bundler would run for the host objects. Returns whether there
/// are any.
fn show(chosen: &[Vec<&MemberObject>], session: &Session) -> bool {
    let hosts: Vec<&&MemberObject> = chosen
        .iter()
        .flatten()
        .filter(|one| one.entry.is_host_mark())
        .collect();
    hosts
        .iter()
        .for_each(|one| object::show_host(Path::new(&one.member), session));
    !hosts.is_empty()
}
