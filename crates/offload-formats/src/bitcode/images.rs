//! Device images embedded in a host module, from two sources: globals that the metadata lists for
//! `.llvm.offloading`, and globals in the sections of LLVM 14. The names of those sections contain
//! the target. The contents are byte array constants.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use memchr::memmem;

use super::module::{Kind, Module, Types};
use super::{modules, unwrapped};
use crate::bitstream::cursor::{Bits, Cursor, Open, Scope};
use crate::error::Malformed;
use crate::offload_sections::{LONGEST_NAME, NAME, RELOCATABLE, is_longer};

/// The limit on the size of all images, as a multiple of the file's size. Equal globals share one
/// constant, so that a small file could need any amount of memory.
const MAX_SHARED: u64 = 16;

/// A device image embedded in a bitcode host object.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Embedded<'a> {
    /// The section in the object file: `.llvm.offloading` for OffloadBinaries, or LLVM 14's
    /// `.llvm.offloading.<triple>.<arch>[.<name>]` for a bare image.
    pub section: Arc<str>,
    /// The contents, borrowed from the file if they are stored contiguously.
    pub bytes: Cow<'a, [u8]>,
}

/// Returns the device images embedded in `bitcode`: the globals in the list, then those in sections
/// of LLVM 14, in the order of the module. Globals whose value is not a byte array are skipped.
/// Fails if `bitcode` is damaged or not bitcode.
pub fn embedded_images(bitcode: &[u8]) -> Result<Vec<Embedded<'_>>, Malformed> {
    let (stream, base) = unwrapped(bitcode)?;
    let mut found = Vec::new();
    let mut room = bitcode.len() as u64 * MAX_SHARED;
    let mut read = || {
        modules(stream)?
            .into_iter()
            .try_for_each(|module| add(Module::read(module)?, &mut room, &mut found))
    };
    read().map_err(|fault| fault.shifted(base))?;
    Ok(found)
}

fn add<'a>(
    module: Module<'a>,
    room: &mut u64,
    found: &mut Vec<Embedded<'a>>,
) -> Result<(), Malformed> {
    let listed: Arc<str> = NAME.into();
    let variable = |id: u64| {
        let global = usize::try_from(id)
            .ok()
            .and_then(|id| module.values.get(id))?;
        global.initializer.filter(|_| global.kind == Kind::Variable)
    };
    let mut wanted: Vec<(u64, Arc<str>)> = listed_globals(&module)?
        .into_iter()
        .filter_map(|id| Some((variable(id)?, Arc::clone(&listed))))
        .collect();
    for global in &module.values {
        let section = module.section(global);
        if !is_longer(section) || section == RELOCATABLE.as_bytes() || global.kind != Kind::Variable
        {
            continue;
        }
        if section.len() > LONGEST_NAME {
            return Err(module
                .cursor
                .fault("a section of device code has a name of more than 4096 bytes"));
        }
        wanted.extend(
            global
                .initializer
                .map(|id| (id, Arc::from(String::from_utf8_lossy(section)))),
        );
    }
    if wanted.is_empty() {
        return Ok(());
    }
    let mut uses: BTreeMap<u64, u64> = BTreeMap::new();
    wanted
        .iter()
        .for_each(|(id, _)| *uses.entry(*id).or_default() += 1);
    let mut texts = texts(&module, &uses.keys().copied().collect())?;
    for (id, text) in &texts {
        let all = uses
            .get(id)
            .map(|uses| uses.saturating_mul(text.len() as u64));
        let left = all.and_then(|all| room.checked_sub(all));
        *room = left.ok_or_else(|| module.cursor.fault("embedded images share their bytes"))?;
    }
    for (id, section) in wanted {
        let Some(left) = uses.get_mut(&id) else {
            continue;
        };
        *left -= 1;
        let contents = if *left > 0 {
            texts.get(&id).cloned()
        } else {
            texts.remove(&id)
        };
        found.extend(contents.map(|bytes| Embedded { section, bytes }));
    }
    Ok(())
}

// The list of globals with device code in a module's metadata.

const OLD_STRING: u64 = 1;
const VALUE: u64 = 2;
const NODE: u64 = 3;
const LIST_NAME: u64 = 4;
const DISTINCT_NODE: u64 = 5;
const KIND: u64 = 6;
const NAMED_NODE: u64 = 10;
const STRINGS: u64 = 35;
const GLOBAL_ATTACHMENT: u64 = 36;
const INDEX_OFFSET: u64 = 38;
const INDEX: u64 = 39;

/// The name of the list. Each row has a global and the name of its section.
const LIST: &[u8] = b"llvm.embedded.objects";

/// The IDs of the values that the module lists for the section `.llvm.offloading`, in the order of
/// the list.
fn listed_globals(module: &Module<'_>) -> Result<Vec<u64>, Malformed> {
    let mut table = Table::default();
    let mut cursor = module.cursor.clone();
    for scope in &module.metadata {
        table.block(&mut cursor, scope.clone())?;
    }
    let value = |row: &u64| table.values.get(table.rows.get(row)?).copied();
    Ok(table.list.iter().filter_map(value).collect())
}

/// The metadata read so far. Keys are metadata IDs.
#[derive(Default)]
struct Table {
    /// The next ID.
    next: u64,
    /// The strings that equal the section's name.
    sections: BTreeSet<u64>,
    /// The value ID in each `VALUE` record.
    values: BTreeMap<u64, u64>,
    /// The first operand of each node with two operands, if the second one is the section's name.
    rows: BTreeMap<u64, u64>,
    /// Whether the next named node is the list.
    is_list: bool,
    /// The rows of the list.
    list: Vec<u64>,
}

impl Table {
    fn block(&mut self, cursor: &mut Cursor<'_>, mut scope: Scope) -> Result<(), Malformed> {
        let mut values = Vec::new();
        cursor.again(&scope);
        while let Some(open) = cursor.next_record(&mut scope)? {
            // Strings come first. Without the section's name there are no rows, so the rest, which
            // may be long, is skipped.
            if open.code == STRINGS && !self.strings(cursor, open)? && self.sections.is_empty() {
                return Ok(());
            }
            if open.code != STRINGS {
                self.record(cursor, open, &mut values)?;
            }
        }
        Ok(())
    }

    fn record(
        &mut self,
        cursor: &mut Cursor<'_>,
        open: Open<'_>,
        values: &mut Vec<u64>,
    ) -> Result<(), Malformed> {
        match open.code {
            OLD_STRING => {
                if *cursor.bytes(open)? == *NAME.as_bytes() {
                    self.sections.insert(self.next);
                }
            }
            LIST_NAME => self.is_list = *cursor.bytes(open)? == *LIST,
            NAMED_NODE if self.is_list => {
                cursor.values(open, usize::MAX, values)?;
                self.list.extend(values.iter().skip(1));
                self.is_list = false;
            }
            VALUE | NODE | DISTINCT_NODE => {
                cursor.values(open, 3, values)?;
                match values[..] {
                    // Type and value.
                    [VALUE, _, id] => drop(self.values.insert(self.next, id)),
                    // Operands are IDs plus 1. 0 means none.
                    [NODE | DISTINCT_NODE, global, section]
                        if global > 0 && section > 0 && self.sections.contains(&(section - 1)) =>
                    {
                        self.rows.insert(self.next, global - 1);
                    }
                    _ => {}
                }
            }
            _ => cursor.pass(open)?,
        }
        // Every other record defines an ID, including records that later LLVM releases add.
        if !matches!(
            open.code,
            LIST_NAME | KIND | NAMED_NODE | GLOBAL_ATTACHMENT | INDEX_OFFSET | INDEX
        ) {
            self.next += 1;
        }
        Ok(())
    }

    /// Reads the record with all strings: their number, the offset of the characters in the blob,
    /// and the blob, which starts with the lengths. Returns whether the section's name may be among
    /// them.
    fn strings(&mut self, cursor: &mut Cursor<'_>, open: Open<'_>) -> Result<bool, Malformed> {
        let mut values = Vec::new();
        let blob = cursor.values(open, 3, &mut values)?.unwrap_or_default();
        let fault = cursor.fault("metadata strings are cut short");
        let [_, count, offset] = values[..] else {
            return Err(fault);
        };
        let split = usize::try_from(offset)
            .ok()
            .and_then(|offset| blob.split_at_checked(offset));
        let (lengths, chars) = split.ok_or(fault)?;
        let first = self.next;
        self.next = first.checked_add(count).ok_or(fault)?;
        if memmem::find(chars, NAME.as_bytes()).is_none() {
            return Ok(false);
        }
        let (mut lengths, mut rest) = (Bits::new(lengths, 0), chars);
        for id in first..self.next {
            let length = lengths.vbr(6).map_err(|_| fault)?;
            let string;
            (string, rest) = usize::try_from(length)
                .ok()
                .and_then(|length| rest.split_at_checked(length))
                .ok_or(fault)?;
            if string == NAME.as_bytes() {
                self.sections.insert(id);
            }
        }
        Ok(true)
    }
}

// Byte array constants of a module.

const SET_TYPE: u64 = 1;
const STRING: u64 = 8;
const C_STRING: u64 = 9;
const DATA: u64 = 22;

/// Returns the contents of the values in `ids` that are byte arrays. LLVM writes such an array as a
/// string, or as a string with a terminating zero. LLVM's reader also accepts data records. Arrays
/// of zeros and arrays with undefined elements have other encodings, but cannot be images.
fn texts<'a>(
    module: &Module<'a>,
    ids: &BTreeSet<u64>,
) -> Result<BTreeMap<u64, Cow<'a, [u8]>>, Malformed> {
    // The IDs of constants follow those of the global values.
    let mut texts = Texts {
        module,
        ids,
        next: module.values.len() as u64,
        found: BTreeMap::new(),
    };
    let mut cursor = module.cursor.clone();
    for scope in &module.constants {
        texts.block(&mut cursor, scope.clone())?;
    }
    Ok(texts.found)
}

struct Texts<'m, 'a> {
    module: &'m Module<'a>,
    ids: &'m BTreeSet<u64>,
    next: u64,
    found: BTreeMap<u64, Cow<'a, [u8]>>,
}

impl<'a> Texts<'_, 'a> {
    fn block(&mut self, cursor: &mut Cursor<'a>, mut scope: Scope) -> Result<(), Malformed> {
        let (mut value_type, mut values) = (0, Vec::new());
        cursor.again(&scope);
        while let Some(open) = cursor.next_record(&mut scope)? {
            if open.code == SET_TYPE {
                cursor.values(open, 2, &mut values)?;
                value_type = values.get(1).copied().unwrap_or(0);
                continue;
            }
            let wanted = self.ids.contains(&self.next);
            match open.code {
                STRING if wanted => drop(self.found.insert(self.next, cursor.bytes(open)?)),
                C_STRING if wanted => {
                    let mut bytes = cursor.bytes(open)?.into_owned();
                    bytes.push(0);
                    self.found.insert(self.next, Cow::Owned(bytes));
                }
                DATA if wanted && Types::read(self.module)?.is_bytes(value_type) => {
                    drop(self.found.insert(self.next, cursor.bytes(open)?));
                }
                _ => cursor.pass(open)?,
            }
            self.next += 1;
        }
        Ok(())
    }
}
