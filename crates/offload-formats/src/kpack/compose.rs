//! Writes archives: new ones, and old ones with other entries.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

use super::msgpack::Written;
use super::{FIRST, MAGIC, Row, Scheme, Table, VERSION, checked, frames};
use crate::compose::{Item, Part, PartList, check_kept, is_same};
use crate::error::Malformed;

/// The properties of a new archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head<'a> {
    /// The build that the archive belongs to.
    pub group: &'a str,
    /// The architectures that the file is for, as one name.
    pub family: &'a str,
    /// The way in which code objects are stored.
    pub scheme: Scheme,
}

/// A code object of a new archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Code {
    /// The number of stored bytes: of the code object, or of its zstd frame.
    pub stored: u64,
    /// The size of the code object.
    pub original_size: u64,
}

/// An entry of a new archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewEntry<'a> {
    /// The program and the number of the registration: `lib/librccl.so#0`.
    pub binary: &'a str,
    /// The architecture.
    pub arch: &'a str,
    /// The index of its code object. Entries with equal code share one.
    pub code: usize,
}

/// Returns the parts of a new archive. `Part::New` has the index of a code object. The bytes equal
/// those of AMD's writer.
///
/// # Errors
/// An entry's code object does not exist, or a frame has 4 GiB or more.
pub fn create(
    head: &Head<'_>,
    entries: &[NewEntry<'_>],
    codes: &[Code],
) -> Result<Vec<Part>, Malformed> {
    let mut kind = Written::default();
    kind.text("hsaco");
    let mut rows = Vec::new();
    for entry in entries {
        let code = codes.get(entry.code);
        let code = code.ok_or(Malformed::new("no code object of this number", 0))?;
        rows.push(Row {
            binary: entry.binary,
            arch: entry.arch,
            ordinal: entry.code as u64,
            original_size: Some(code.original_size),
            others: vec![("type", kind.0.as_slice())],
            at: 0,
        });
    }
    let mut architectures: Vec<&str> = Vec::new();
    for entry in entries {
        if !architectures.contains(&entry.arch) {
            architectures.push(entry.arch);
        }
    }
    let number = |number: u64| {
        let mut bytes = Written::default();
        bytes.number(number);
        bytes.0
    };
    let text = |text: &str| {
        let mut bytes = Written::default();
        bytes.text(text);
        bytes.0
    };
    let fields = vec![
        ("format_version", Cow::Owned(number(VERSION.into()))),
        ("group_name", text(head.group).into()),
        ("gfx_arch_family", text(head.family).into()),
        ("gfx_arches", list_of(&architectures).into()),
        ("toc", Vec::new().into()),
        ("compression_scheme", text(head.scheme.name()).into()),
    ];
    let stored = codes.iter().enumerate();
    let stored = stored.map(|(index, code)| Stored::New(index, code.stored));
    assemble(fields, head.scheme, &rows, &stored.collect::<Vec<_>>())
}

/// Returns the parts of the archive `data` with the entries of `items`, in their order. `Part::New`
/// has the index of an item and stands for its bytes as stored. The other fields of the table of
/// contents stay. An architecture that loses all of its entries is no longer listed.
///
/// # Errors
/// The archive is damaged, an item names a missing or damaged entry, or a frame has 4 GiB or more.
pub fn compose(data: &[u8], items: &[Item<(), Code>]) -> Result<Vec<Part>, Malformed> {
    let mut table = Table::read(data)?;
    if is_same(items, table.rows.len()) {
        return Ok(vec![Part::Old(0..data.len() as u64)]);
    }
    let old = match table.scheme {
        Scheme::None => table.blobs.iter().map(|blob| checked(data, blob)).collect(),
        Scheme::ZstdPerKernel => frames(data, &table)?,
    };
    let mut olds: Vec<Option<Row<'_>>> = table.rows.drain(..).map(Some).collect();
    let had: Vec<&str> = olds.iter().flatten().map(|row| row.arch).collect();
    let (mut rows, mut stored) = (Vec::new(), Vec::new());
    let mut shared: HashMap<u64, u64> = HashMap::new();
    for (index, item) in items.iter().enumerate() {
        let missing = Malformed::new("the archive has no such entry", table.at);
        let row = item.old().and_then(|entry| olds.get_mut(entry)?.take());
        let row = row.ok_or(missing)?;
        let next = stored.len() as u64;
        let (ordinal, original_size) = match item {
            Item::Changed { size: code, .. } => {
                stored.push(Stored::New(index, code.stored));
                (next, Some(code.original_size))
            }
            _ => {
                let ordinal = *shared.entry(row.ordinal).or_insert(next);
                if ordinal == next {
                    let range = usize::try_from(row.ordinal).ok().and_then(|at| old.get(at));
                    stored.push(Stored::Old(range.ok_or(missing)?.clone()?));
                }
                (ordinal, row.original_size)
            }
        };
        rows.push(Row {
            ordinal,
            original_size,
            ..row
        });
    }
    let kept = stored.iter().map(|one| match one {
        Stored::Old(range) => range.end - range.start,
        Stored::New(..) => 0,
    });
    check_kept(kept, data.len() as u64, table.at)?;
    let remains = |arch: &&str| !had.contains(arch) || rows.iter().any(|row| row.arch == *arch);
    table.architectures.retain(remains);
    let fields = table.fields.iter().map(|(name, value)| match *name {
        "gfx_arches" => (*name, Cow::Owned(list_of(&table.architectures))),
        name => (name, Cow::Borrowed(*value)),
    });
    assemble(fields.collect(), table.scheme, &rows, &stored)
}

fn list_of(texts: &[&str]) -> Vec<u8> {
    let mut bytes = Written::default();
    bytes.list(texts.len());
    for text in texts {
        bytes.text(text);
    }
    bytes.0
}

/// A code object as it is stored.
enum Stored {
    /// A range of the old archive.
    Old(Range<u64>),
    /// New contents with this index and size.
    New(usize, u64),
}

impl Stored {
    fn size(&self) -> u64 {
        match self {
            Stored::Old(range) => range.end - range.start,
            Stored::New(_, size) => *size,
        }
    }

    fn push_to(&self, parts: &mut PartList) {
        match self {
            Stored::Old(range) => parts.old(range.clone()),
            Stored::New(index, size) => parts.contents(*index, *size),
        }
    }
}

/// The table's map of programs, in the order of their first entries, and their architectures.
fn toc(rows: &[Row<'_>]) -> Vec<u8> {
    let mut binaries: Vec<(&str, Vec<&Row<'_>>)> = Vec::new();
    let mut places: HashMap<&str, usize> = HashMap::new();
    for row in rows {
        let place = *places.entry(row.binary).or_insert(binaries.len());
        match binaries.get_mut(place) {
            Some((_, rows)) => rows.push(row),
            None => binaries.push((row.binary, vec![row])),
        }
    }
    let mut bytes = Written::default();
    bytes.map(binaries.len());
    for (binary, rows) in binaries {
        bytes.text(binary);
        bytes.map(rows.len());
        for row in rows {
            bytes.text(row.arch);
            bytes.map(row.others.len() + 1 + usize::from(row.original_size.is_some()));
            // The order of AMD's writer: type, ordinal, size, others.
            let first = usize::from(row.others.first().is_some_and(|(name, _)| *name == "type"));
            let (before, after) = row.others.split_at_checked(first).unwrap_or_default();
            let others = |bytes: &mut Written, fields: &[(&str, &[u8])]| {
                for (name, value) in fields {
                    bytes.text(name);
                    bytes.raw(value);
                }
            };
            others(&mut bytes, before);
            bytes.text("ordinal");
            bytes.number(row.ordinal);
            if let Some(size) = row.original_size {
                bytes.text("original_size");
                bytes.number(size);
            }
            others(&mut bytes, after);
        }
    }
    bytes.0
}

/// Lays out the archive: header, code objects, table of contents.
fn assemble(
    mut fields: Vec<(&str, Cow<'_, [u8]>)>,
    scheme: Scheme,
    rows: &[Row<'_>],
    stored: &[Stored],
) -> Result<Vec<Part>, Malformed> {
    let mut parts = PartList::default();
    parts.pad_to(FIRST);
    let mut places = Vec::new();
    match scheme {
        Scheme::None => {
            let mut blobs = Written::default();
            blobs.list(stored.len());
            for one in stored {
                blobs.map(2);
                blobs.text("offset");
                blobs.number(parts.size);
                blobs.text("size");
                blobs.number(one.size());
                one.push_to(&mut parts);
            }
            places.push(("blobs", blobs.0));
        }
        Scheme::ZstdPerKernel => {
            let too_large = |_| Malformed::new("too large for a kpack archive", 0);
            let count = u32::try_from(stored.len()).map_err(too_large)?;
            parts.bytes(count.to_le_bytes().to_vec());
            for one in stored {
                let size = u32::try_from(one.size()).map_err(too_large)?;
                parts.bytes(size.to_le_bytes().to_vec());
                one.push_to(&mut parts);
            }
            for (name, value) in [("zstd_offset", FIRST), ("zstd_size", parts.size - FIRST)] {
                let mut bytes = Written::default();
                bytes.number(value);
                places.push((name, bytes.0));
            }
        }
    }
    places.push(("toc", toc(rows)));
    for (name, value) in places {
        match fields.iter_mut().find(|(field, _)| *field == name) {
            Some((_, old)) => *old = value.into(),
            None => fields.push((name, value.into())),
        }
    }
    let table = parts.size;
    let mut bytes = Written::default();
    bytes.map(fields.len());
    for (name, value) in &fields {
        bytes.text(name);
        bytes.raw(value);
    }
    parts.bytes(bytes.0);
    // In place of the zeros before the first code object.
    let mut header = [&MAGIC[..], &VERSION.to_le_bytes(), &table.to_le_bytes()].concat();
    header.resize(FIRST as usize, 0);
    let rest = parts.parts.into_iter().skip(1);
    Ok([Part::Bytes(header)].into_iter().chain(rest).collect())
}
