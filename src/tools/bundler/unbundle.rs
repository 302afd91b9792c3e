//! Unbundling: one input into an output for each target (docs/spec/containers.md 2.11). Every target gets the code object that
//! fits it best; one code object may serve several (docs/spec/faults.md B13, B14).

use std::path::Path;

use anyhow::{Result, bail};

use super::container::{self, Contents, Entry};
use super::kinds::{Layout, layout};
use super::list::hint;
use super::{Request, archive, matching, object, targets, text, verbose};
use crate::formats::bundle::Id;
use crate::io::outputs::{Outputs, trouble};
use crate::io::piece::{Piece, Spool};
use crate::sys::session::Session;

/// Writes the outputs: all, or none.
pub(super) fn run(request: &Request, session: &Session) -> Result<()> {
    let ids = targets::read(&request.targets, request.task)?;
    let [path] = &request.inputs[..] else { bail!("only one input file supported in unbundling mode") };
    if request.outputs.len() != ids.len() {
        bail!("number of output files and targets should match in unbundling mode");
    }
    if request.file_type == "a" {
        return archive::unbundle(request, &ids, session);
    }
    let mut spool = Spool::new(session);
    let piece = Piece::open(path)?;
    let name = path.display().to_string();
    let (entries, whole) = match layout(&request.file_type)? {
        Layout::Text(comment) => {
            let (plain, compressed) = container::inflate(&piece, &name, &mut spool, session)?;
            verbose::read(request, &piece, &compressed, &session.shell);
            let plain = plain.into_piece(&mut spool)?;
            (text::entries(&plain, comment, &name)?, Contents::from(plain))
        }
        other => {
            let found = container::read(&piece, &name, hint(other), "input", &mut spool, session)?;
            verbose::read(request, &piece, &found.compressed, &session.shell);
            (found.entries, found.whole)
        }
    };
    let chosen = matching::choose(&entries, &ids, request, &session.shell);
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
            // A file without any bundle of ours is taken for what the host's compiler made.
            None => (nothing && id.kind == "host").then(|| whole.clone()),
        };
        write(&mut outputs, output, contents.as_ref())?;
    }
    outputs.commit()
}

fn write(outputs: &mut Outputs, path: &Path, contents: Option<&Contents>) -> Result<()> {
    let mut output = outputs.create_or_stdout(path)?;
    if let Some(contents) = contents {
        contents.write_to(&mut output).map_err(|error| trouble(path, &error))?;
    }
    Ok(())
}

/// An error that names the targets without a code object, sorted.
fn check_missing(ids: &[Id], chosen: &[Option<&Entry>]) -> Result<()> {
    let missing = ids.iter().zip(chosen).filter(|(_, chosen)| chosen.is_none());
    let mut missing: Vec<String> = missing.map(|(id, _)| id.to_string()).collect();
    missing.sort();
    match &missing[..] {
        [] => Ok(()),
        [one] => bail!("Can't find bundles for {one}"),
        [one, other] => bail!("Can't find bundles for {one} and {other}"),
        [most @ .., last] => bail!("Can't find bundles for {}, and {last}", most.join(", ")),
    }
}
