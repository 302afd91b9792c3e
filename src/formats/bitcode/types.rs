//! The types that determine the size of an offload entry: integers, pointers, and arrays and
//! structs of them.

use super::layout::Layout;
use super::module::{Global, Module};
use crate::error::Malformed;

const COUNT: u64 = 1;
const INTEGER: u64 = 7;
const POINTER: u64 = 8;
const ARRAY: u64 = 11;
const STRUCT: u64 = 18;
const STRUCT_NAME: u64 = 19;
const NAMED_STRUCT: u64 = 20;
const OPAQUE_POINTER: u64 = 25;

/// The limit on the nesting of types. In damaged bitcode, a type can contain itself.
const MAX_DEPTH: u32 = 32;
/// The limit on the fields of a struct, including those of inner structs. Offload entries have at
/// most nine.
const MAX_FIELDS: usize = 1024;

/// Types by number.
pub(super) struct Types(Vec<Type>);

enum Type {
    Integer(u64),
    /// The pointee type, if known, and the address space.
    Pointer(Option<u64>, u64),
    Array(u64, u64),
    /// Whether the struct is packed, and the types of its fields.
    Struct(bool, Vec<u64>),
    Other,
}

impl Types {
    /// Reads the types of `module`.
    pub(super) fn read(module: &Module<'_>) -> Result<Types, Malformed> {
        let Some(mut scope) = module.types.clone() else {
            return Ok(Types(Vec::new()));
        };
        let (mut cursor, mut values, mut types) = (module.cursor.clone(), Vec::new(), Vec::new());
        cursor.again(&scope);
        while let Some(open) = cursor.next_record(&mut scope)? {
            cursor.values(open, MAX_FIELDS, &mut values)?;
            types.push(match values[..] {
                [COUNT | STRUCT_NAME, ..] => continue,
                [INTEGER, width, ..] => Type::Integer(width),
                [POINTER, to, ref space @ ..] => {
                    Type::Pointer(Some(to), space.first().copied().unwrap_or(0))
                }
                [OPAQUE_POINTER, space, ..] => Type::Pointer(None, space),
                [ARRAY, count, element, ..] => Type::Array(count, element),
                [STRUCT | NAMED_STRUCT, packed, ref fields @ ..] => {
                    Type::Struct(packed != 0, fields.to_vec())
                }
                _ => Type::Other,
            });
        }
        Ok(Types(types))
    }

    fn get(&self, number: u64) -> Option<&Type> {
        usize::try_from(number)
            .ok()
            .and_then(|number| self.0.get(number))
    }

    /// Whether type `number` is a byte array.
    pub(super) fn is_bytes(&self, number: u64) -> bool {
        matches!(self.get(number), Some(Type::Array(_, element)) if matches!(self.get(*element), Some(Type::Integer(8))))
    }

    /// The size of the variable `global` if it is a struct of integers and pointers.
    pub(super) fn struct_size(&self, global: &Global<'_>, layout: &Layout) -> Option<u64> {
        let number = match self.get(global.of)? {
            Type::Pointer(Some(to), _) if global.by_pointer => *to,
            _ if global.by_pointer => return None,
            _ => global.of,
        };
        matches!(self.get(number)?, Type::Struct(..)).then_some(())?;
        let mut left = MAX_FIELDS;
        self.size(number, layout, &mut left, MAX_DEPTH)
            .map(|(size, _)| size)
    }

    /// Size and alignment of type `number`, in bytes.
    fn size(
        &self,
        number: u64,
        layout: &Layout,
        left: &mut usize,
        depth: u32,
    ) -> Option<(u64, u64)> {
        *left = left.checked_sub(1)?;
        let depth = depth.checked_sub(1)?;
        match self.get(number)? {
            Type::Integer(width) => Some(layout.integer(*width)),
            Type::Pointer(_, space) => Some(layout.pointer(*space)),
            Type::Array(count, element) => {
                let (size, align) = self.size(*element, layout, left, depth)?;
                Some((size.checked_mul(*count)?, align))
            }
            Type::Struct(packed, fields) => {
                let (mut size, mut largest) = (0u64, 1);
                for field in fields {
                    let (field, align) = self.size(*field, layout, left, depth)?;
                    let align = if *packed { 1 } else { align };
                    size = size.checked_next_multiple_of(align)?.checked_add(field)?;
                    largest = largest.max(align);
                }
                Some((size.checked_next_multiple_of(largest)?, largest))
            }
            Type::Other => None,
        }
    }
}
