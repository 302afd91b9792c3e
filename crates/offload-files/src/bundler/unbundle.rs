//! Unbundles one input into one output per target (docs/spec/containers.md 2.11). A target gets the
//! code object with the same ID, otherwise the compatible one with the most specific ID (2.6). A
//! code object may be written for several targets (docs/spec/faults.md B13, B14). Archives are
//! unbundled member by member, and `-list` lists the IDs.

use std::collections::{BTreeMap, HashMap};
use std::io::{BufReader, Read};
use std::ops::Range;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};

use super::container::{self, BundleEntry, Hint};
use super::{Layout, Request, layout, print_read, read_ids, show_host};
use offld_system::io::file_slice::{FileSlice, Spool, member_of, write_archive};
use offld_system::io::outputs::{Output, Outputs, io_error};
use offld_system::io::rope::Rope;
use offld_system::session::Session;
use offld_system::shell::{self, Shell};
use offload_formats::archive::{self, ArchiveFault, MemberContents};
use offload_formats::bundle::{self, Id, IdFault, Objects, check, compatibility};
use offload_formats::compressed::{self, Header, Unpack};
use offload_formats::error::Malformed;
use offload_formats::model::printable;
use offload_formats::{containers, magic};

pub(super) fn run(request: &Request, session: &Session) -> Result<()> {
    let ids = read_ids(&request.targets, request.task)?;
    let [path] = &request.inputs[..] else {
        bail!("only one input file supported in unbundling mode")
    };
    if request.outputs.len() != ids.len() {
        bail!("number of output files and targets should match in unbundling mode");
    }
    if request.file_type == "a" {
        return unbundle_archive(request, &ids, session);
    }
    let mut spool = Spool::new(session);
    let piece = FileSlice::open(path)?;
    let name = path.display().to_string();
    let (entries, whole) = match layout(&request.file_type)? {
        Layout::Text(comment) => {
            let (plain, compressed) = container::inflate(&piece, &name, &mut spool, session)?;
            print_read(request, &piece, &compressed, &session.shell);
            let plain = plain.into_piece(&mut spool)?;
            (
                container::text_entries(&plain, comment, &name)?,
                Rope::from(plain),
            )
        }
        other => {
            let found = container::read(&piece, &name, hint(other), "input", &mut spool, session)?;
            print_read(request, &piece, &found.compressed, &session.shell);
            (found.entries, found.whole)
        }
    };
    let chosen = choose(&entries, &ids, request, &session.shell);
    if !request.allow_missing {
        check_missing(&ids, &chosen)?;
    }
    if request.show_commands && chosen.iter().flatten().any(|entry| entry.is_host_mark()) {
        show_host(path, session);
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
fn explain<'i>(
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

// Lists the IDs of a file's code objects, as stored and in the order of the file
// (docs/spec/containers.md 2.11).

pub(super) fn list(request: &Request, session: &Session) -> Result<()> {
    let [path] = &request.inputs[..] else {
        bail!("only one input file supported for -list")
    };
    let mut spool = Spool::new(session);
    let piece = FileSlice::open(path)?;
    let name = path.display().to_string();
    let layout = layout(&request.file_type)?;
    let ids = match layout {
        Layout::Text(comment) => {
            let (plain, compressed) = container::inflate(&piece, &name, &mut spool, session)?;
            print_read(request, &piece, &compressed, &session.shell);
            let entries = container::text_entries(&plain.into_piece(&mut spool)?, comment, &name)?;
            entries.into_iter().map(|entry| entry.id).collect()
        }
        _ => match heads(&piece, &name).filter(|_| !request.verbose) {
            Some(ids) => ids?,
            None => {
                let found =
                    container::read(&piece, &name, hint(layout), "input", &mut spool, session)?;
                print_read(request, &piece, &found.compressed, &session.shell);
                found.entries.into_iter().map(|entry| entry.id).collect()
            }
        },
    };
    print(&ids)
}

/// The possible formats of a file with this layout.
fn hint(layout: Layout) -> Hint {
    if layout == Layout::Binary {
        Hint::Binary
    } else {
        Hint::Object
    }
}

fn print(ids: &[String]) -> Result<()> {
    let text: String = ids
        .iter()
        .map(|id| format!("{}\n", printable(id)))
        .collect();
    shell::print(&text)
}

/// The IDs in consecutive compressed bundles, each decompressed only up to the end of its header.
/// `None` for other files, and for those that must be decompressed completely: version 1 does not
/// store where a bundle ends.
fn heads(piece: &FileSlice, name: &str) -> Option<Result<Vec<String>>> {
    if !compressed::is_compressed(piece.bytes()) {
        return None;
    }
    let mut ids = Vec::new();
    for item in containers::row(piece.bytes()) {
        let Range { start: at, end } = item.ok()?.range;
        let whole = piece.slice(at, end - at)?;
        let header = Header::read(whole.bytes(), at).ok()?;
        let packed = whole.from(header.size);
        if header.total.is_none() || !header.is_likely(packed.size()) {
            return None;
        }
        let plain = Unpack::new(header, BufReader::new(packed.reader()), at).ok()?;
        match head(plain, header.plain_size, name)? {
            Ok(found) => ids.extend(found),
            Err(error) => return Some(Err(error)),
        }
    }
    Some(Ok(ids))
}

/// The IDs of the binary bundle at the start of `plain`, or `None` for other data.
fn head(mut plain: impl Read, size: u64, name: &str) -> Option<Result<Vec<String>>> {
    let mut magic = [0; bundle::MAGIC.len()];
    plain
        .read_exact(&mut magic)
        .ok()
        .filter(|()| bundle::is_bundle(&magic))?;
    let context = |error| Malformed::or_io(error).context(name.to_owned());
    let read = bundle::read_head((&magic[..]).chain(plain), size).map_err(context);
    Some(read.map(|head| head.slots.into_iter().map(|slot| slot.id).collect()))
}

// Unbundles archives of fat objects and bundles into one archive per target
// (docs/spec/containers.md 2.12). Each archive gets all code objects that are compatible with its
// target.

/// A code object with the archive member that contains it.
struct MemberObject {
    /// The member's name.
    member: String,
    entry: BundleEntry,
    /// The parsed ID of the entry.
    id: Id,
}

/// Writes an archive of code objects for each of `ids`.
fn unbundle_archive(request: &Request, ids: &[Id], session: &Session) -> Result<()> {
    let [path] = &request.inputs[..] else {
        bail!("only one input file supported in unbundling mode")
    };
    let mut spool = Spool::new(session);
    let found = code_objects(request, path, &mut spool, session)?;
    if request.check_input_archive {
        check_composition(&found, path)?;
    }
    let chosen = choose_members(request, &found, ids, session);
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
        write_members(chosen, output, &mut made, &mut spool, session)?;
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
        print_read(request, piece, &contents.compressed, &session.shell);
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
fn choose_members<'f>(
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
        .for_each(|one| show_host(Path::new(&one.member), session));
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
fn write_members(
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
