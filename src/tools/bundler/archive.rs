//! Archives of fat objects and bundles, unbundled into one archive for each target (docs/spec/containers.md 2.12). A code object
//! goes into the archive of each target that it is compatible with.

mod check;
mod members;
mod write;

use std::path::Path;

use anyhow::{Result, bail};

use super::container::{self, BundleEntry, Hint};
use super::{Request, object, verbose};
use crate::formats::bundle::{Id, compatibility};
use crate::io::outputs::Outputs;
use crate::io::piece::{Piece, Spool};
use crate::sys::session::Session;

/// A code object, and the archive member that it is in.
struct MemberObject {
    /// The member's name.
    member: String,
    entry: BundleEntry,
    /// The entry's id, parsed.
    id: Id,
}

/// Writes an archive of code objects for each of `ids`.
pub(super) fn unbundle(request: &Request, ids: &[Id], session: &Session) -> Result<()> {
    let [path] = &request.inputs[..] else { bail!("only one input file supported in unbundling mode") };
    let mut spool = Spool::new(session);
    let found = code_objects(request, path, &mut spool, session)?;
    if request.check_input_archive {
        check::composition(&found, path)?;
    }
    let chosen = choose(request, &found, ids, session);
    let missing = ids.iter().zip(&chosen).find(|(_, chosen)| chosen.is_empty());
    if let (Some((id, _)), false) = (missing, request.allow_missing) {
        bail!("no compatible code object found for the target '{id}' in heterogeneous archive library: {}", path.display());
    }
    if request.show_commands && show(&chosen, session) {
        return Ok(());
    }
    let mut outputs = Outputs::new(session);
    for (chosen, output) in chosen.iter().zip(&request.outputs) {
        let mut made = outputs.create_or_stdout(output)?;
        write::archive(chosen, output, &mut made, &mut spool, session)?;
    }
    outputs.commit()
}

/// The code objects of all members, in order. Members without any, such as archives and texts, are skipped.
fn code_objects(request: &Request, path: &Path, spool: &mut Spool, session: &Session) -> Result<Vec<MemberObject>> {
    let archive = Piece::open(path)?;
    let mut found = Vec::new();
    members::each(&archive, path, spool, |member, piece, spool| {
        let name = format!("{}({member})", path.display());
        let held = container::read(piece, &name, Hint::Object, "code object", spool, session)?;
        verbose::read(request, piece, &held.compressed, &session.shell);
        let of_member = |entry: BundleEntry| MemberObject { member: member.to_owned(), id: entry.parsed_id(), entry };
        found.extend(held.entries.into_iter().map(of_member));
        Ok(())
    })?;
    Ok(found)
}

/// For each target, the code objects that are compatible with it.
fn choose<'f>(request: &Request, found: &'f [MemberObject], ids: &[Id], session: &Session) -> Vec<Vec<&'f MemberObject>> {
    let mut chosen: Vec<Vec<&MemberObject>> = vec![Vec::new(); ids.len()];
    for one in found {
        for (id, chosen) in ids.iter().zip(&mut chosen) {
            let verdict = compatibility(&one.id, id, request.hip_openmp_compatible);
            if request.explain {
                session.shell.line(&verdict.line(&one.id, id));
            }
            if verdict.serves() {
                chosen.push(one);
            }
        }
    }
    chosen
}

/// Prints the commands that LLVM's bundler would run for the host's objects; returns whether there are any.
fn show(chosen: &[Vec<&MemberObject>], session: &Session) -> bool {
    let hosts: Vec<&&MemberObject> = chosen.iter().flatten().filter(|one| one.entry.is_host_mark()).collect();
    hosts.iter().for_each(|one| object::show_host(Path::new(&one.member), session));
    !hosts.is_empty()
}
