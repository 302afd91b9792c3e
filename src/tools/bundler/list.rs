//! Lists the IDs of a file's code objects, as stored and in the order of the file
//! (docs/spec/containers.md 2.11).

use std::io::{BufReader, Read};
use std::ops::Range;

use anyhow::{Result, bail};

use super::container::{self, Hint};
use super::{Layout, Request, layout, verbose};
use crate::error::Malformed;
use crate::formats::compressed::{self, Header, Unpack};
use crate::formats::{bundle, containers};
use crate::io::file_slice::{FileSlice, Spool};
use crate::model::printable;
use crate::sys::session::Session;
use crate::sys::shell;

pub(super) fn run(request: &Request, session: &Session) -> Result<()> {
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
            verbose::read(request, &piece, &compressed, &session.shell);
            let entries = container::text_entries(&plain.into_piece(&mut spool)?, comment, &name)?;
            entries.into_iter().map(|entry| entry.id).collect()
        }
        _ => match heads(&piece, &name).filter(|_| !request.verbose) {
            Some(ids) => ids?,
            None => {
                let found =
                    container::read(&piece, &name, hint(layout), "input", &mut spool, session)?;
                verbose::read(request, &piece, &found.compressed, &session.shell);
                found.entries.into_iter().map(|entry| entry.id).collect()
            }
        },
    };
    print(&ids)
}

/// The possible formats of a file with this layout.
pub(super) fn hint(layout: Layout) -> Hint {
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
