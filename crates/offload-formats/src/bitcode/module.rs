//! Reads the records of a module: its target, its sections, and its global values with their names.
//! Stores the positions of its blocks for the other readers. Also reads its types and its data
//! layout.

use std::borrow::Cow;

use super::Found;
use crate::bitstream::cursor::{Cursor, Open, Scope, StreamEntry};
use crate::bytes::slice;
use crate::error::Malformed;

const CONSTANTS_BLOCK: u32 = 11;
const NAMES_BLOCK: u32 = 14;
const METADATA_BLOCK: u32 = 15;
const TYPE_BLOCK: u32 = 17;

const VERSION: u64 = 1;
const TRIPLE: u64 = 2;
const DATA_LAYOUT: u64 = 3;
const ASM: u64 = 4;
const SECTION_NAME: u64 = 5;
const GLOBAL_VARIABLE: u64 = 7;
const FUNCTION: u64 = 8;
const OLD_ALIAS: u64 = 9;
const ALIAS: u64 = 14;
const IFUNC: u64 = 18;
/// Records of the symbol table of older modules.
const NAMED_VALUE: u64 = 1;
const NAMED_FUNCTION: u64 = 3;

/// From this version on (LLVM 5), names are in a string table, given by offset and length.
const WITH_STRTAB: u64 = 2;
/// The number of operands that are read per record. Later ones are not needed.
const MAX_OPERANDS: usize = 24;

/// The top level of a module.
pub(super) struct Module<'a> {
    pub triple: Cow<'a, [u8]>,
    pub data_layout: Cow<'a, [u8]>,
    /// The module-level assembly.
    pub asm: Vec<u8>,
    /// The names of sections. Values refer to them by number, starting at 1.
    sections: Vec<Cow<'a, [u8]>>,
    /// The global values by ID: variables, functions, aliases.
    pub values: Vec<Global<'a>>,
    /// The type block.
    pub types: Option<Scope>,
    /// The blocks of constants, whose IDs follow those of the global values.
    pub constants: Vec<Scope>,
    /// The blocks of metadata.
    pub metadata: Vec<Scope>,
    /// The cursor for reading the blocks (`Cursor::again`).
    pub cursor: Cursor<'a>,
}

/// The kind of a global value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Variable,
    Function,
    Alias,
    /// An indirect function, whose implementation a resolver selects at load time.
    Ifunc,
}

pub(super) struct Global<'a> {
    pub kind: Kind,
    /// The name, as in the text form of the module.
    pub name: Cow<'a, [u8]>,
    /// The encoded linkage.
    pub linkage: u64,
    /// The encoded visibility.
    pub visibility: u64,
    /// The number of the section, or 0 for none.
    section: u64,
    /// Whether this module defines the value.
    pub defined: bool,
    /// The ID of a variable's initial value.
    pub initializer: Option<u64>,
    /// The number of the type.
    pub of: u64,
    /// Whether the type is that of a pointer to the value (before LLVM 3.7).
    pub by_pointer: bool,
}

impl<'a> Module<'a> {
    /// Reads the module `found`.
    pub(super) fn read(found: Found<'a>) -> Result<Module<'a>, Malformed> {
        let Found {
            mut cursor,
            mut scope,
            strtab,
        } = found;
        let mut module = Module {
            triple: Cow::default(),
            data_layout: Cow::default(),
            asm: Vec::new(),
            sections: Vec::new(),
            values: Vec::new(),
            types: None,
            constants: Vec::new(),
            metadata: Vec::new(),
            cursor: cursor.clone(),
        };
        let (mut names, mut version, mut values) = (Vec::new(), 0, Vec::new());
        loop {
            match cursor.next(&mut scope)? {
                StreamEntry::End => break,
                StreamEntry::Block(inner) => {
                    match inner.id {
                        TYPE_BLOCK => module.types = Some(inner.clone()),
                        CONSTANTS_BLOCK => module.constants.push(inner.clone()),
                        METADATA_BLOCK => module.metadata.push(inner.clone()),
                        NAMES_BLOCK => names.push(inner.clone()),
                        _ => {}
                    }
                    cursor.skip(inner)?;
                }
                StreamEntry::Abbreviation(_) => {}
                StreamEntry::Record(id) => {
                    let open = cursor.open(&scope, id)?;
                    if module.text(&mut cursor, open)? {
                        continue;
                    }
                    cursor.values(open, MAX_OPERANDS, &mut values)?;
                    match &values[..] {
                        [VERSION, number, ..] if *number > WITH_STRTAB => {
                            return Err(cursor.fault("a module of a version later than LLVM 22"));
                        }
                        [VERSION, number, ..] => version = *number,
                        [
                            code @ (GLOBAL_VARIABLE | FUNCTION | OLD_ALIAS | ALIAS | IFUNC),
                            operands @ ..,
                        ] => {
                            module.values.push(named(
                                &cursor,
                                *code,
                                operands,
                                strtab.filter(|_| version >= WITH_STRTAB),
                                version,
                            )?);
                        }
                        _ => {}
                    }
                }
            }
        }
        // At the end of the module, the cursor has all abbreviations of BLOCKINFO, which the inner
        // blocks need.
        module.cursor = cursor;
        if version < WITH_STRTAB {
            names
                .iter()
                .try_for_each(|names| module.take_names(names))?;
        }
        Ok(module)
    }

    /// Stores the text in the record `open`. Returns false if the record has none.
    fn text(&mut self, cursor: &mut Cursor<'a>, open: Open<'_>) -> Result<bool, Malformed> {
        match open.code {
            TRIPLE => self.triple = cursor.bytes(open)?,
            DATA_LAYOUT => self.data_layout = cursor.bytes(open)?,
            SECTION_NAME => self.sections.push(cursor.bytes(open)?),
            ASM => {
                self.asm.extend_from_slice(&cursor.bytes(open)?);
                self.asm.push(b'\n');
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Reads the names in the block `scope`, for a module without a string table.
    fn take_names(&mut self, scope: &Scope) -> Result<(), Malformed> {
        let (mut cursor, mut scope, mut values) = (self.cursor.clone(), scope.clone(), Vec::new());
        cursor.again(&scope);
        while let Some(open) = cursor.next_record(&mut scope)? {
            // A character takes at least six bits, which limits the length of a name.
            let most = usize::try_from(cursor.left())
                .unwrap_or(usize::MAX)
                .saturating_mul(2);
            cursor.values(open, most, &mut values)?;
            let (id, name) = match &values[..] {
                [NAMED_VALUE, id, name @ ..] | [NAMED_FUNCTION, id, _, name @ ..] => (*id, name),
                _ => continue,
            };
            let name: Option<Vec<u8>> = name.iter().map(|char| u8::try_from(*char).ok()).collect();
            let name = name.ok_or_else(|| cursor.fault("a character of more than 8 bits"))?;
            if let Some(value) = usize::try_from(id)
                .ok()
                .and_then(|id| self.values.get_mut(id))
            {
                value.name = Cow::Owned(name);
            }
        }
        Ok(())
    }

    /// The name of the section of `global`. Empty for none.
    pub(super) fn section(&self, global: &Global<'_>) -> &[u8] {
        let index = global
            .section
            .checked_sub(1)
            .and_then(|index| usize::try_from(index).ok());
        index
            .and_then(|index| self.sections.get(index))
            .map_or(&[], |name| name)
    }
}

/// Reads the global value in a record with this code and these operands.
fn named<'a>(
    cursor: &Cursor<'_>,
    code: u64,
    operands: &[u64],
    strtab: Option<&'a [u8]>,
    version: u64,
) -> Result<Global<'a>, Malformed> {
    let mut name = Cow::default();
    let mut rest = operands;
    if version >= WITH_STRTAB {
        let [offset, size, after @ ..] = operands else {
            return Err(cursor.fault("a global value without a name"));
        };
        if *size > 0 {
            let here = cursor.fault("a name past the end of the string table");
            let strtab = strtab.ok_or(Malformed {
                what: "names without a string table",
                ..here
            })?;
            name = Cow::Borrowed(slice(strtab, *offset, *size, here.what, here.at)?);
        }
        rest = after;
    }
    global(code, rest, name).ok_or_else(|| cursor.fault("a global value with too few operands"))
}

/// Like `named`, for the operands after the name.
fn global<'a>(code: u64, operands: &[u64], name: Cow<'a, [u8]>) -> Option<Global<'a>> {
    let operand = |index: usize| operands.get(index).copied();
    let or_zero = |index: usize| operand(index).unwrap_or(0);
    Some(match code {
        GLOBAL_VARIABLE => Global {
            kind: Kind::Variable,
            name,
            of: operand(0)?,
            // The lowest bit marks a constant.
            by_pointer: operand(1)? & 2 == 0,
            initializer: operand(2)?.checked_sub(1),
            defined: operand(2)? != 0,
            linkage: operand(3)?,
            section: or_zero(5),
            visibility: or_zero(6),
        },
        FUNCTION => Global {
            kind: Kind::Function,
            name,
            of: operand(0)?,
            by_pointer: false,
            initializer: None,
            defined: operand(2)? == 0,
            linkage: operand(3)?,
            section: or_zero(6),
            visibility: or_zero(7),
        },
        // The address space, then the value. The old form of an alias has no address space.
        _ => {
            let skipped = if code == OLD_ALIAS { 0 } else { 1 };
            Global {
                kind: if code == IFUNC {
                    Kind::Ifunc
                } else {
                    Kind::Alias
                },
                name,
                of: operand(0)?,
                by_pointer: false,
                initializer: None,
                defined: true,
                linkage: operand(skipped + 2)?,
                section: 0,
                visibility: or_zero(skipped + 3),
            }
        }
    })
}

// The types that determine the size of an offload entry: integers, pointers, and arrays and structs
// of them.

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

// The parts of a module's data layout that determine the sizes of integers and pointers and the
// prefix of symbol names (source: LLVM's language reference, "Data Layout").

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Layout {
    /// Address space, size and alignment in bytes.
    pointers: Vec<(u64, u64, u64)>,
    /// Width in bits and alignment in bytes, sorted by width.
    integers: Vec<(u64, u64)>,
    /// The prefix of symbol names.
    pub prefix: &'static str,
}

impl Layout {
    /// Parses the layout `text`. Missing and malformed parts get LLVM's defaults.
    pub(super) fn read(text: &[u8]) -> Layout {
        let mut layout = Layout {
            pointers: vec![(0, 8, 8)],
            // LLVM's defaults, which most targets have. The default alignment of `i64` is 4 bytes.
            integers: vec![(1, 1), (8, 1), (16, 2), (32, 4), (64, 4)],
            prefix: "",
        };
        for part in String::from_utf8_lossy(text).split('-') {
            // Mach-O, and COFF on i386.
            if part == "m:o" || part == "m:x" {
                layout.prefix = "_";
            }
            layout.take(part);
        }
        layout
    }

    fn take(&mut self, part: &str) -> Option<()> {
        let mut fields = part.split(':');
        let kind = fields.next()?;
        let mut bytes = || fields.next()?.parse().ok().map(|bits: u64| bits / 8);
        if let Some(space) = kind.strip_prefix('p') {
            // Letters after `p` are properties of the pointers, which do not matter here.
            let space = space.trim_start_matches(|c: char| c.is_ascii_alphabetic());
            let space = if space.is_empty() {
                0
            } else {
                space.parse().ok()?
            };
            let size = bytes()?;
            let align = bytes().filter(|align| *align > 0).unwrap_or(size);
            self.pointers.retain(|(other, ..)| *other != space);
            self.pointers.push((space, size, align.max(1)));
        } else if let Some(width) = kind.strip_prefix('i') {
            let (width, align) = (width.parse().ok()?, bytes()?.max(1));
            self.integers.retain(|(other, _)| *other != width);
            self.integers.push((width, align));
            self.integers.sort();
        }
        Some(())
    }

    /// Size and alignment of an integer of `width` bits. The alignment is that of the smallest
    /// width in the layout that is large enough, else that of the largest width.
    pub(super) fn integer(&self, width: u64) -> (u64, u64) {
        let next = self
            .integers
            .iter()
            .find(|(other, _)| *other >= width)
            .or(self.integers.last());
        let align = next.map_or(1, |(_, align)| *align);
        (width.div_ceil(8).next_multiple_of(align), align)
    }

    /// Size and alignment of a pointer of the address space.
    pub(super) fn pointer(&self, space: u64) -> (u64, u64) {
        let pointer_of = |space| self.pointers.iter().find(|(other, ..)| *other == space);
        pointer_of(space)
            .or(pointer_of(0))
            .map_or((8, 8), |(_, size, align)| (*size, *align))
    }
}
