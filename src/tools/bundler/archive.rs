//! Unbundles archives of fat objects and bundles into one archive per target
//! (docs/spec/containers.md 2.12). Each archive gets all code objects that are compatible with its
//! target.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};

use super::container::{self, BundleEntry, Hint};
use super::unbundle::explain;
use super::{Request, object, verbose};
use crate::formats::archive::{self, ArchiveFault, MemberContents};
use crate::formats::bundle::{Id, IdFault, Objects, check};
use crate::formats::magic;
use crate::io::file_slice::{FileSlice, Spool, member_of, write_archive};
use crate::io::outputs::{Output, Outputs, io_error};
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
        check_composition(&found, path)?;
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
        write(chosen, output, &mut made, &mut spool, session)?;
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
    each_member(&archive, path, spool, |member, piece, spool| {
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
        explain(of_members(), ids, request, &session.shell);
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

/// Calls `take` with name and contents of each member of `archive`, the file at `path`. Members of
/// a thin archive are separate files with names relative to it.
fn each_member(
    archive: &FileSlice,
    path: &Path,
    spool: &mut Spool,
    mut take: impl FnMut(&str, &FileSlice, &mut Spool) -> Result<()>,
) -> Result<()> {
    if !magic::is_archive(archive.bytes()) {
        // LLVM prints this for files of any size.
        bail!("'{}': file too small to be an archive", path.display());
    }
    let fault_in =
        |fault: ArchiveFault| anyhow!(fault.in_archive(&format_args!("'{}'", path.display())));
    for member in archive::members(archive.bytes()).map_err(fault_in)? {
        let member = member.map_err(fault_in)?;
        let piece = match member.contents {
            MemberContents::Within { offset, size } => archive
                .slice(offset, size)
                .with_context(|| format!("'{}'({})", path.display(), member.shown_name()))?,
            MemberContents::File => FileSlice::open_member(&member.file(path))?,
            MemberContents::InArchive { header } => member_of(&member.file(path), header)?,
        };
        take(&String::from_utf8_lossy(member.name), &piece, spool)?;
    }
    Ok(())
}

/// Fails if two code objects for a processor specify different features.
fn check_composition(found: &[MemberObject], path: &Path) -> Result<()> {
    // Consecutive members with the same name count as one, because nothing distinguishes them.
    let members = found.chunk_by(|one, other| one.member == other.member);
    members
        .into_iter()
        .chain([found])
        .try_for_each(|members| check_members(members, path))
}

fn check_members(found: &[MemberObject], path: &Path) -> Result<()> {
    let mut first_of: BTreeMap<&Id, &MemberObject> = BTreeMap::new();
    for one in found {
        first_of.entry(&one.id).or_insert(one);
    }
    let ids: Vec<Id> = first_of.keys().map(|id| (*id).clone()).collect();
    let Err(IdFault::Conflict(one, other)) = check(&ids) else {
        return Ok(());
    };
    let find = |text: &str| first_of.values().find(|found| found.id.to_string() == text);
    let text =
        |text: &str| find(text).map_or_else(|| text.to_owned(), |found| found.entry.id.clone());
    let mut members: Vec<&str> = [&one, &other]
        .iter()
        .filter_map(|id| Some(find(id)?.member.as_str()))
        .collect();
    members.dedup();
    let members = members.join(" and ");
    bail!(
        "conflicting TargetIDs [{}, {}] found in {members} of {}",
        text(&one),
        text(&other),
        path.display()
    );
}

/// Writes an archive of `chosen` to `out`, the output at `path`.
fn write(
    chosen: &[&MemberObject],
    path: &Path,
    out: &mut Output,
    spool: &mut Spool,
    session: &Session,
) -> Result<()> {
    let mut named = Vec::with_capacity(chosen.len());
    for one in chosen {
        named.push((
            member_name(&one.member, &one.entry.id, &one.id.target_id),
            one.entry.contents()?.into_piece(spool)?,
        ));
    }
    let members = named.iter().map(|(name, piece)| (name.as_str(), piece));
    write_archive(members, out, session).map_err(|error| io_error(path, &error))
}

/// `<stem>-<id><stem><ext>`, with colons replaced by underscores. The extension depends on the
/// target's processor.
fn member_name(member: &str, id: &str, target_id: &str) -> String {
    let file = member.rsplit('/').next().unwrap_or(member);
    let (stem, own) = match file.rfind('.').filter(|_| file != "." && file != "..") {
        Some(dot) => file.split_at(dot),
        None => (file, ""),
    };
    let ext = if target_id.contains("gfx") {
        ".bc"
    } else if target_id.contains("sm_") {
        ".cubin"
    } else {
        own
    };
    format!("{stem}-{id}{stem}{ext}").replace(':', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ob_52_ob_44_members_are_named_as_llvm_names_them() {
        for (member, id, target_id, name) in [
            (
                "func_1.o",
                "openmp-amdgcn-amd-amdhsa--gfx906",
                "gfx906",
                "func_1-openmp-amdgcn-amd-amdhsa--gfx906func_1.bc",
            ),
            (
                "func_1.o",
                "openmp-amdgcn-amd-amdhsa--gfx908:sramecc+:xnack-",
                "gfx908:sramecc+:xnack-",
                "func_1-openmp-amdgcn-amd-amdhsa--gfx908_sramecc+_xnack-func_1.bc",
            ),
            (
                "d/func_2.o",
                "openmp-nvptx64-nvidia-cuda-unknown-sm_70",
                "sm_70",
                "func_2-openmp-nvptx64-nvidia-cuda-unknown-sm_70func_2.cubin",
            ),
            (
                "func_1.o",
                "host-x86_64-unknown-linux-gnu-",
                "",
                "func_1-host-x86_64-unknown-linux-gnu-func_1.o",
            ),
            (
                "weird.name.o",
                "host-a-b-c-",
                "",
                "weird.name-host-a-b-c-weird.name.o",
            ),
            ("none", "host-a-b-c-", "", "none-host-a-b-c-none"),
        ] {
            assert_eq!(member_name(member, id, target_id), name);
        }
    }
}
