//! Byte array constants of a module.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use super::module::Module;
use super::types::Types;
use crate::error::Malformed;
use crate::formats::bitstream::cursor::{Cursor, Scope};

const SET_TYPE: u64 = 1;
const STRING: u64 = 8;
const C_STRING: u64 = 9;
const DATA: u64 = 22;

/// Returns the contents of those values among `ids` that are byte arrays. LLVM writes such an array
/// as a string, or as a string with a terminating zero. Its reader also accepts data records.
/// Arrays of zeros and arrays with undefined elements have other encodings, but cannot be images.
pub(super) fn texts<'a>(
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
