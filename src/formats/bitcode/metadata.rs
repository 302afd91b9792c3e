//! Reads the list of globals with device code from a module's metadata.

use std::collections::{BTreeMap, BTreeSet};

use memchr::memmem;

use super::module::Module;
use crate::error::Malformed;
use crate::formats::bitstream::bits::Bits;
use crate::formats::bitstream::cursor::{Cursor, Open, Scope};
use crate::formats::offload_sections::NAME;

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
pub(super) fn listed(module: &Module<'_>) -> Result<Vec<u64>, Malformed> {
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
    /// The value ID of each value.
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
        // Every other record is a node, including those that later LLVM releases add.
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
