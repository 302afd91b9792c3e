//! Finds the constants of a module that only `omp_offload.info` uses.
//!
//! clang lists the target regions of a module in this metadata, with the device and inode number of
//! the source file as constants. Only the front end reads it, when it compiles the device code. So
//! the numbers have no effect on the device code, if nothing else uses the same constants: LLVM
//! stores each constant once, and a function may use the same number for something else.
//!
//! A constant is found only if the records of the module prove that nothing else uses it. This
//! needs the operands of every instruction. A module with an unknown record has no such constant.
//!
//! Source: `BitcodeWriter.cpp` and `LLVMBitCodes.h` of LLVM 14 to 22.

use std::collections::{BTreeMap, BTreeSet};

use super::Found;
use crate::bitstream::cursor::{Cursor, Scope, StreamEntry};
use crate::error::Malformed;

const CONSTANTS_BLOCK: u32 = 11;
pub(super) const FUNCTION_BLOCK: u32 = 12;
const NAMES_BLOCK: u32 = 14;
pub(super) const METADATA_BLOCK: u32 = 15;
const ATTACHMENT_BLOCK: u32 = 16;
const TYPE_BLOCK: u32 = 17;
const USE_ORDER_BLOCK: u32 = 18;

pub(super) const GLOBAL_VARIABLE: u64 = 7;
pub(super) const FUNCTION: u64 = 8;
pub(super) const ALIAS: u64 = 14;
pub(super) const IFUNC: u64 = 18;

/// Records of constants.
pub(super) const SET_TYPE: u64 = 1;
const NULL: u64 = 2;
pub(super) const INTEGER: u64 = 4;

/// Records of metadata.
const VALUE: u64 = 2;
const NODE: u64 = 3;
const NAME: u64 = 4;
const NAMED_NODE: u64 = 10;
pub(super) const STRINGS: u64 = 35;
/// Records that do not define exactly one ID: strings define many; names, kinds, attachments and
/// the index define none.
const WITHOUT_ID: [u64; 8] = [NAME, 6, NAMED_NODE, 11, STRINGS, 36, 38, 39];
/// Records of metadata without constants as operands: strings, locations, and debug information
/// whose operands are all nodes, strings or plain numbers.
const WITHOUT_CONSTANTS: [u64; 25] = [
    7, 14, 16, 19, 20, 21, 22, 23, 24, 25, 27, 28, 29, 30, 31, 32, 33, 34, 36, 37, 38, 39, 40, 44,
    47,
];
const INFO: &[u8] = b"omp_offload.info";

/// Returns the IDs of the constants with device and inode numbers that only `omp_offload.info`
/// uses. Empty if the module has an unknown record.
///
/// # Errors
/// The module is damaged.
pub(super) fn own_constants(found: &Found<'_>) -> Result<BTreeSet<u64>, Malformed> {
    let mut reader = Reader {
        cursor: found.cursor.clone(),
        values: 0,
        types: Vec::new(),
        bodies: Vec::new(),
        constants: BTreeMap::new(),
        metadata: Metadata::default(),
        own: Own::default(),
    };
    let known = reader.module(found.scope.clone())?;
    Ok(if known {
        reader.own.constants.keys().copied().collect()
    } else {
        BTreeSet::new()
    })
}

/// The properties of a type that determine how operands are read.
enum Type {
    Void,
    Metadata,
    /// The result and the parameters.
    Function(u64, Vec<u64>),
    /// A pointer to this type, up to LLVM 14.
    Pointer(u64),
    Other,
}

/// The metadata of the module.
#[derive(Default)]
struct Metadata {
    /// The number of IDs.
    count: u64,
    /// The value in each `VALUE` record, by metadata ID.
    values: BTreeMap<u64, u64>,
    /// The operands of nodes, by ID.
    nodes: BTreeMap<u64, Vec<u64>>,
    /// The nodes of `omp_offload.info`.
    info: BTreeSet<u64>,
}

/// The constants for which no other use has been found: metadata IDs by constant, and constants by
/// metadata ID.
#[derive(Default)]
struct Own {
    constants: BTreeMap<u64, u64>,
    metadata: BTreeMap<u64, u64>,
}

impl Own {
    /// Notes a use of the value `id`.
    fn uses_value(&mut self, id: u64) {
        if let Some(metadata) = self.constants.remove(&id) {
            self.metadata.remove(&metadata);
        }
    }

    /// Notes a use of the metadata `id`.
    fn uses_metadata(&mut self, id: u64) {
        if let Some(constant) = self.metadata.remove(&id) {
            self.constants.remove(&constant);
        }
    }

    /// Notes a use of the metadata `operand`, which is an ID plus 1, or 0 for none.
    fn refers_to_metadata(&mut self, operand: u64) {
        if let Some(id) = operand.checked_sub(1) {
            self.uses_metadata(id);
        }
    }

    /// Notes a use of the metadata `operand`, which is an ID or an ID plus 1.
    fn may_use_metadata(&mut self, operand: u64) {
        self.uses_metadata(operand);
        self.refers_to_metadata(operand);
    }
}

struct Reader<'a> {
    cursor: Cursor<'a>,
    /// The number of values so far: global values and constants.
    values: u64,
    types: Vec<Type>,
    /// The types of the functions with a body, in the order of bodies.
    bodies: Vec<u64>,
    /// The null and integer constants of the module, by ID: whether each is an integer other than
    /// 0.
    constants: BTreeMap<u64, bool>,
    metadata: Metadata,
    own: Own,
}

/// A result that is false for a module with an unknown record.
type Known = Result<bool, Malformed>;

impl Reader<'_> {
    fn module(&mut self, mut scope: Scope) -> Known {
        let (mut values, mut uses, mut bodies) = (Vec::new(), Vec::new(), 0);
        loop {
            match self.cursor.next(&mut scope)? {
                StreamEntry::End => {
                    uses.drain(..).for_each(|id| self.own.uses_value(id));
                    return Ok(true);
                }
                StreamEntry::Abbreviation(_) => {}
                StreamEntry::Record(id) => {
                    let open = self.cursor.open(&scope, id)?;
                    self.cursor.values(open, usize::MAX, &mut values)?;
                    self.global(&values, &mut uses);
                }
                StreamEntry::Block(inner) => match inner.id {
                    TYPE_BLOCK => {
                        if !self.read_types(inner)? {
                            return Ok(false);
                        }
                    }
                    CONSTANTS_BLOCK => self.read_constants(inner, &mut uses, true)?,
                    METADATA_BLOCK => {
                        let first = self.metadata.count;
                        self.read_metadata(inner.clone())?;
                        self.choose();
                        let after = self.cursor.clone();
                        self.cursor.again(&inner);
                        self.check_metadata(inner, first)?;
                        self.cursor = after;
                    }
                    FUNCTION_BLOCK => {
                        let Some(kind) = self.bodies.get(bodies).copied() else {
                            return Ok(false);
                        };
                        bodies += 1;
                        uses.drain(..).for_each(|id| self.own.uses_value(id));
                        if !self.function(inner, kind)? {
                            return Ok(false);
                        }
                    }
                    // The other blocks do not use constants. A use-list order may name one, but
                    // only orders its uses.
                    _ => self.cursor.skip(inner)?,
                },
            }
        }
    }

    /// Reads a record of the module. `uses`: the constants that global values use.
    fn global(&mut self, record: &[u64], uses: &mut Vec<u64>) {
        // The operands after the offset and the size of the name.
        let operand = |index: usize| record.get(index + 3).copied().unwrap_or_default();
        match record.first() {
            Some(&GLOBAL_VARIABLE) => uses.extend(operand(2).checked_sub(1)),
            Some(&FUNCTION) => {
                // The IDs plus 1 of the prologue data, the prefix data and the `personality`
                // function.
                uses.extend(
                    [10, 13, 14]
                        .map(operand)
                        .into_iter()
                        .filter_map(|id| id.checked_sub(1)),
                );
                if operand(2) == 0 {
                    self.bodies.push(operand(0));
                }
            }
            Some(&(ALIAS | IFUNC)) => uses.push(operand(2)),
            _ => return,
        }
        self.values += 1;
    }

    fn read_types(&mut self, mut scope: Scope) -> Known {
        const COUNT: u64 = 1;
        const NAME: u64 = 19;
        const LAST: u64 = 26;
        let mut values = Vec::new();
        while let Some(open) = self.cursor.next_record(&mut scope)? {
            self.cursor.values(open, usize::MAX, &mut values)?;
            self.types.push(match &values[..] {
                [COUNT | NAME, ..] => continue,
                [2, ..] => Type::Void,
                [8, to, ..] => Type::Pointer(*to),
                [16, ..] => Type::Metadata,
                [21, _, result, parameters @ ..] => Type::Function(*result, parameters.to_vec()),
                [code, ..] if *code <= LAST => Type::Other,
                _ => return Ok(false),
            });
        }
        Ok(true)
    }

    /// Reads constants, and adds the values that they use to `uses`.
    fn read_constants(
        &mut self,
        mut scope: Scope,
        uses: &mut Vec<u64>,
        of_module: bool,
    ) -> Result<(), Malformed> {
        /// Constants without operands: null, undefined values, numbers, strings and assembly.
        const PLAIN: [u64; 13] = [2, 3, 4, 5, 6, 8, 9, 18, 22, 23, 26, 28, 30];
        let mut values = Vec::new();
        while let Some(open) = self.cursor.next_record(&mut scope)? {
            self.cursor.values(open, usize::MAX, &mut values)?;
            match &values[..] {
                [SET_TYPE, ..] => continue,
                [code, ..] if PLAIN.contains(code) => {
                    if of_module && matches!(*code, NULL | INTEGER) {
                        self.constants.insert(self.values, *code == INTEGER);
                    }
                }
                [_, operands @ ..] => uses.extend(operands),
                [] => {}
            }
            self.values += 1;
        }
        Ok(())
    }

    /// Reads the module's metadata.
    fn read_metadata(&mut self, mut scope: Scope) -> Result<(), Malformed> {
        let (mut values, mut name) = (Vec::new(), Vec::new());
        while let Some(open) = self.cursor.next_record(&mut scope)? {
            let code = open.code;
            self.cursor.values(open, usize::MAX, &mut values)?;
            let operands = values.get(1..).unwrap_or_default();
            let metadata = &mut self.metadata;
            match code {
                STRINGS => {
                    let strings = operands.first().copied().unwrap_or_default();
                    metadata.count = metadata.count.saturating_add(strings);
                }
                NAME => name = operands.to_vec(),
                NAMED_NODE
                    if name
                        .iter()
                        .copied()
                        .eq(INFO.iter().map(|byte| u64::from(*byte))) =>
                {
                    metadata.info.extend(operands);
                }
                VALUE => {
                    if let [_, value, ..] = operands {
                        metadata.values.insert(metadata.count, *value);
                    }
                }
                NODE => {
                    metadata.nodes.insert(metadata.count, operands.to_vec());
                }
                _ => {}
            }
            if !WITHOUT_ID.contains(&code) {
                metadata.count = metadata.count.saturating_add(1);
            }
        }
        Ok(())
    }

    /// Chooses the constants to check: the file numbers in the nodes of target regions, which begin
    /// with 0. Nodes of variables begin with another number and have no file numbers.
    fn choose(&mut self) {
        let metadata = &self.metadata;
        let constant = |operand: &u64| {
            let id = operand.checked_sub(1)?;
            let value = metadata.values.get(&id)?;
            Some((id, *value, *self.constants.get(value)?))
        };
        for node in metadata.info.iter().filter_map(|id| metadata.nodes.get(id)) {
            let [kind, device, inode, _, _, ..] = &node[..] else {
                continue;
            };
            if !matches!(constant(kind), Some((_, _, false))) {
                continue;
            }
            for (id, value, _) in [device, inode]
                .into_iter()
                .filter_map(constant)
                .filter(|it| it.2)
            {
                self.own.constants.insert(value, id);
                self.own.metadata.insert(id, value);
            }
        }
    }

    /// Notes the uses of constants by other metadata of the module. `id`: the ID of the block's
    /// first metadata.
    fn check_metadata(&mut self, mut scope: Scope, mut id: u64) -> Result<(), Malformed> {
        /// The last record whose operands are IDs plus 1.
        const LAST_PLUS_ONE: u64 = 45;
        let mut values = Vec::new();
        while let Some(open) = self.cursor.next_record(&mut scope)? {
            let code = open.code;
            self.cursor.values(open, usize::MAX, &mut values)?;
            let operands = values.get(1..).unwrap_or_default();
            match code {
                STRINGS => id = id.saturating_add(operands.first().copied().unwrap_or_default()),
                VALUE => {
                    if let [_, value, ..] = operands
                        && self.own.constants.get(value).is_some_and(|own| *own != id)
                    {
                        self.own.uses_value(*value);
                    }
                }
                NODE if self.metadata.info.contains(&id) => {
                    let others = operands
                        .iter()
                        .enumerate()
                        .filter(|(at, _)| !matches!(at, 1 | 2));
                    others.for_each(|(_, operand)| self.own.refers_to_metadata(*operand));
                }
                _ if WITHOUT_ID.contains(&code) || WITHOUT_CONSTANTS.contains(&code) => {}
                _ if code <= LAST_PLUS_ONE => {
                    operands
                        .iter()
                        .for_each(|operand| self.own.refers_to_metadata(*operand));
                }
                _ => operands
                    .iter()
                    .for_each(|operand| self.own.may_use_metadata(*operand)),
            }
            if !WITHOUT_ID.contains(&code) {
                id = id.saturating_add(1);
            }
        }
        Ok(())
    }

    /// Notes the uses of constants by a function of the type with the number `kind`.
    fn function(&mut self, mut scope: Scope, kind: u64) -> Known {
        let Some(parameters) = self.parameters(kind) else {
            return Ok(false);
        };
        let mut next = self.values + parameters;
        let (mut values, mut uses) = (Vec::new(), Vec::new());
        loop {
            match self.cursor.next(&mut scope)? {
                StreamEntry::End => return Ok(true),
                StreamEntry::Abbreviation(_) => {}
                StreamEntry::Record(id) => {
                    let open = self.cursor.open(&scope, id)?;
                    self.cursor.values(open, usize::MAX, &mut values)?;
                    match self.instruction(&values, next) {
                        None => return Ok(false),
                        Some(has_result) => next += u64::from(has_result),
                    }
                }
                StreamEntry::Block(inner) => match inner.id {
                    CONSTANTS_BLOCK => {
                        let of_module = self.values;
                        self.values = next;
                        self.read_constants(inner, &mut uses, false)?;
                        next = std::mem::replace(&mut self.values, of_module);
                        uses.drain(..).for_each(|id| self.own.uses_value(id));
                    }
                    METADATA_BLOCK => self.function_metadata(inner)?,
                    ATTACHMENT_BLOCK | NAMES_BLOCK | USE_ORDER_BLOCK => self.cursor.skip(inner)?,
                    _ => return Ok(false),
                },
            }
        }
    }

    /// The number of parameters of a function type.
    fn parameters(&self, kind: u64) -> Option<u64> {
        let found = |number: u64| self.types.get(usize::try_from(number).ok()?);
        match found(kind)? {
            Type::Function(_, parameters) => Some(parameters.len() as u64),
            Type::Pointer(to) => match found(*to)? {
                Type::Function(_, parameters) => Some(parameters.len() as u64),
                _ => None,
            },
            _ => None,
        }
    }

    fn function_metadata(&mut self, mut scope: Scope) -> Result<(), Malformed> {
        let mut values = Vec::new();
        while let Some(open) = self.cursor.next_record(&mut scope)? {
            self.cursor.values(open, usize::MAX, &mut values)?;
            match &values[..] {
                [VALUE, _, value, ..] => self.own.uses_value(*value),
                [_, operands @ ..] => {
                    operands
                        .iter()
                        .for_each(|operand| self.own.may_use_metadata(*operand));
                }
                [] => {}
            }
        }
        Ok(())
    }

    /// Notes the uses by a record of a function. `next`: the ID of the next value. Returns whether
    /// the instruction has a result; `None` for an unknown record.
    fn instruction(&mut self, record: &[u64], next: u64) -> Option<bool> {
        let [code, operands @ ..] = record else {
            return None;
        };
        let mut operands = Operands {
            rest: operands,
            next,
            own: &mut self.own,
        };
        let (form, has_result) = match *code {
            CALL => return call(&mut operands, &self.types),
            INVOKE => {
                // Attributes, calling convention, and the two successor blocks.
                operands.skip(4);
                return callee(&mut operands, &self.types);
            }
            FIRST_DEBUG_RECORD..=LAST_DEBUG_RECORD => {
                operands.debug_record(*code);
                return Some(false);
            }
            code => form(code)?,
        };
        operands.take(form)?;
        Some(has_result)
    }
}

const INVOKE: u64 = 13;
const CALL: u64 = 34;
const FIRST_DEBUG_RECORD: u64 = 61;
const SIMPLE_DEBUG_RECORD: u64 = 64;
const LAST_DEBUG_RECORD: u64 = 66;

/// The operands of the instruction with this code, and whether it has a result. `None` for an
/// unknown code. Operands by letter:
///
/// * `V`: a value, followed by its type if a later record defines the value
/// * `v`: a value
/// * `s`: a value with a sign
/// * `a`: a value, given by its absolute ID
/// * `t`: something else, such as a type or a flag
///
/// The letters after `*` repeat.
fn form(code: u64) -> Option<(&'static str, bool)> {
    Some(match code {
        1 => ("t", false),          // the number of blocks
        2 => ("Vv*t", true),        // binary operation
        3 => ("V*t", true),         // cast
        6 => ("VV", true),          // extractelement
        7 => ("VvV", true),         // insertelement
        8 => ("Vvv", true),         // shufflevector
        9 | 28 => ("Vv*t", true),   // comparison
        10 => ("*V", false),        // return
        11 => ("ttv", false),       // branch
        12 => ("tvt*at", false),    // switch
        15 => ("", false),          // unreachable
        16 => ("t*st", true),       // phi
        19 => ("tta*t", true),      // alloca
        20 | 41 => ("V*t", true),   // load
        23 => ("tvt", true),        // va_arg
        26 => ("V*t", true),        // extractvalue
        27 => ("VV*t", true),       // insertvalue
        29 => ("VvV*t", true),      // select
        31 => ("tv*t", false),      // indirect branch
        33 => ("", false),          // the same debug location
        35 | 36 => ("*t", false),   // debug location, fence
        39 => ("V", false),         // resume
        43 => ("tt*V", true),       // getelementptr
        44 | 45 => ("VV*t", false), // store
        46 => ("VVv*t", true),      // cmpxchg
        47 => ("ttt*tV", true),     // landingpad
        55 => ("t*V", false),       // operand bundle
        56 => ("V*t", true),        // unary operation
        58 => ("V", true),          // freeze
        59 => ("VV*t", true),       // atomicrmw
        60 => ("*t", false),        // functions whose blocks have their address taken
        _ => return None,
    })
}

/// The operands of an instruction that are not read yet.
struct Operands<'r, 'o> {
    rest: &'r [u64],
    /// The ID of the next value. Operands are relative to it.
    next: u64,
    own: &'o mut Own,
}

impl Operands<'_, '_> {
    fn one(&mut self) -> Option<u64> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    fn skip(&mut self, count: usize) {
        self.rest = self.rest.get(count..).unwrap_or_default();
    }

    /// Reads all operands. `None` if there are more than in `form`.
    fn take(&mut self, form: &str) -> Option<()> {
        let (once, again) = form.split_once('*').unwrap_or((form, ""));
        let mut letters = once
            .chars()
            .chain(again.chars().cycle().take_while(|_| !again.is_empty()));
        while !self.rest.is_empty() {
            self.operand(letters.next()?);
        }
        Some(())
    }

    fn operand(&mut self, letter: char) {
        match letter {
            'V' => self.value_with_type(),
            'v' => {
                let value = self.one().unwrap_or_default();
                self.own.uses_value(self.id(value));
            }
            's' => {
                let value = self.one().unwrap_or_default();
                let size = value >> 1;
                self.own.uses_value(match value & 1 {
                    0 => self.next.wrapping_sub(size),
                    _ => self.next.wrapping_add(size),
                });
            }
            'a' => {
                let value = self.one().unwrap_or_default();
                self.own.uses_value(value);
            }
            _ => self.skip(1),
        }
    }

    fn value_with_type(&mut self) {
        let Some(value) = self.one() else { return };
        let id = self.id(value);
        self.own.uses_value(id);
        if id >= self.next {
            self.skip(1);
        }
    }

    /// The ID of a relative operand. The operand is `next` minus the ID, modulo 2^32, so it wraps
    /// around for later values.
    fn id(&self, operand: u64) -> u64 {
        u64::from((self.next as u32).wrapping_sub(operand as u32))
    }

    fn debug_record(&mut self, code: u64) {
        let count = if code == SIMPLE_DEBUG_RECORD {
            3
        } else {
            usize::MAX
        };
        for _ in 0..count.min(self.rest.len()) {
            let operand = self.one().unwrap_or_default();
            self.own.may_use_metadata(operand);
        }
        self.value_with_type();
    }
}

/// Reads the operands of a call. Returns whether the call has a result.
fn call(operands: &mut Operands<'_, '_>, types: &[Type]) -> Option<bool> {
    const HAS_TYPE: u64 = 1 << 15;
    const HAS_FLAGS: u64 = 1 << 17;
    operands.skip(1);
    let convention = operands.one()?;
    if convention & HAS_TYPE == 0 {
        return None;
    }
    operands.skip(usize::from(convention & HAS_FLAGS != 0));
    callee(operands, types)
}

/// Reads the type of a callee, the callee, and the arguments. Returns whether the call has a
/// result.
fn callee(operands: &mut Operands<'_, '_>, types: &[Type]) -> Option<bool> {
    let of = |number: u64| types.get(usize::try_from(number).ok()?);
    let Type::Function(result, parameters) = of(operands.one()?)? else {
        return None;
    };
    operands.value_with_type();
    for parameter in parameters {
        let argument = operands.one()?;
        let id = operands.id(argument);
        if matches!(of(*parameter)?, Type::Metadata) {
            operands.own.may_use_metadata(id);
        } else {
            operands.own.uses_value(id);
        }
    }
    // The additional arguments of a variadic function.
    operands.take("*V")?;
    Some(!matches!(of(*result)?, Type::Void))
}
