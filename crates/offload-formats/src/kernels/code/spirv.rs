//! SPIR-V: an entry point is a function, which refers to other functions, types, constants and
//! variables by the numbers (IDs) of their instructions. Numbers depend on the rest of the module, so
//! only the order in which they appear counts.
//!
//! Source: SPIR-V specification 1.6, sections 2.4 (layout of a module) and 3.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use rspirv::binary::{Assemble, Consumer, ParseAction, parse_bytes};
use rspirv::dr::{Instruction, ModuleHeader, Operand};
use rspirv::spirv::{Decoration, Op};
use xxhash_rust::xxh3::Xxh3;

use super::{CodeDigest, Digests, Piece, add_name};
use crate::spirv::is_whole;

/// The limit on the size of a module, whose instructions take about ten times as much memory.
const LARGEST: usize = 64 << 20;

/// Returns the digest of each entry point of the module. A module with instructions of unknown
/// extensions has none.
pub(super) fn digests(module: &[u8]) -> HashMap<String, CodeDigest> {
    let mut list = List::default();
    // rspirv relies on the lengths of instructions.
    if module.len() > LARGEST || !is_whole(module) || parse_bytes(module, &mut list).is_err() {
        return HashMap::new();
    }
    let module = Module::of(&list.0);
    let piece = |id: u64| match u32::try_from(id) {
        Ok(id) => module.piece(id),
        Err(_) => Piece::default(),
    };
    let mut digests = Digests::new(&piece);
    let entries = list
        .0
        .iter()
        .filter(|one| one.class.opcode == Op::EntryPoint);
    let each = entries.filter_map(|entry| match entry.operands.as_slice() {
        [
            _,
            Operand::IdRef(function),
            Operand::LiteralString(name),
            ..,
        ] => Some((name.clone(), digests.of(&[u64::from(*function)]))),
        _ => None,
    });
    each.collect()
}

/// The instructions of a module.
#[derive(Default)]
struct List(Vec<Instruction>);

impl Consumer for List {
    fn initialize(&mut self) -> ParseAction {
        ParseAction::Continue
    }

    fn finalize(&mut self) -> ParseAction {
        ParseAction::Continue
    }

    fn consume_header(&mut self, _: ModuleHeader) -> ParseAction {
        ParseAction::Continue
    }

    fn consume_instruction(&mut self, instruction: Instruction) -> ParseAction {
        self.0.push(instruction);
        ParseAction::Continue
    }
}

/// The instructions of a module, by their numbers.
struct Module<'m> {
    list: &'m [Instruction],
    /// Functions, each with its instructions.
    functions: HashMap<u32, Range<usize>>,
    /// Types, constants and variables.
    globals: HashMap<u32, usize>,
    /// Decorations and execution modes, by the number that they are for.
    annotations: HashMap<u32, Vec<usize>>,
    /// Sets of instructions for debuggers.
    debuggers: HashSet<u32>,
    /// Memory models: how the module addresses memory.
    models: Vec<usize>,
}

impl<'m> Module<'m> {
    fn of(list: &'m [Instruction]) -> Self {
        let mut module = Module {
            list,
            functions: HashMap::new(),
            globals: HashMap::new(),
            annotations: HashMap::new(),
            debuggers: HashSet::new(),
            models: Vec::new(),
        };
        let mut function: Option<(u32, usize)> = None;
        for (at, one) in list.iter().enumerate() {
            match (one.class.opcode, one.operands.first(), one.result_id) {
                (Op::Function, _, Some(id)) => function = Some((id, at)),
                (Op::FunctionEnd, ..) => {
                    if let Some((id, start)) = function.take() {
                        module.functions.insert(id, start..at + 1);
                    }
                }
                _ if function.is_some() => {}
                (
                    Op::Decorate
                    | Op::MemberDecorate
                    | Op::DecorateId
                    | Op::DecorateString
                    | Op::MemberDecorateString
                    | Op::ExecutionMode
                    | Op::ExecutionModeId,
                    Some(Operand::IdRef(id)),
                    _,
                ) => module.annotations.entry(*id).or_default().push(at),
                (Op::ExtInstImport, Some(Operand::LiteralString(set)), Some(id))
                    if set.starts_with("NonSemantic.") || set.contains("DebugInfo") =>
                {
                    module.debuggers.insert(id);
                }
                (Op::MemoryModel, ..) => module.models.push(at),
                (_, _, Some(id)) => drop(module.globals.insert(id, at)),
                _ => {}
            }
        }
        module
    }

    /// The function, type, constant or variable with this number.
    fn piece(&self, id: u32) -> Piece {
        let mut writer = Writer {
            module: self,
            hash: Xxh3::new(),
            targets: Vec::new(),
            own: HashSet::new(),
            numbers: HashMap::new(),
        };
        if let Some(range) = self.functions.get(&id) {
            let body = self.list.get(range.clone()).unwrap_or_default();
            writer.own = body.iter().filter_map(|one| one.result_id).collect();
            // A function without blocks is one of another module, of which the name counts.
            let is_defined = body.iter().any(|one| one.class.opcode == Op::Label);
            for at in &self.models {
                writer.all(self.list.get(*at));
            }
            for one in body {
                writer.instruction(one, is_defined);
            }
        } else if let Some(one) = self.globals.get(&id).and_then(|at| self.list.get(*at)) {
            writer.instruction(one, false);
        }
        Piece {
            digest: writer.hash.digest128(),
            targets: writer.targets,
        }
    }
}

/// Writes the instructions of a piece into its digest.
struct Writer<'w> {
    module: &'w Module<'w>,
    hash: Xxh3,
    targets: Vec<u64>,
    /// The numbers that the function defines.
    own: HashSet<u32>,
    /// Their order of appearance.
    numbers: HashMap<u32, u64>,
}

impl Writer<'_> {
    /// Adds an instruction with its annotations. `without_names`: not the names for linkers.
    fn instruction(&mut self, one: &Instruction, without_names: bool) {
        let is_for_debuggers = match one.class.opcode {
            Op::Line | Op::NoLine => true,
            Op::ExtInst => {
                matches!(one.operands.first(), Some(Operand::IdRef(set)) if self.module.debuggers.contains(set))
            }
            _ => false,
        };
        if is_for_debuggers {
            return;
        }
        self.all(Some(one));
        let annotations = one
            .result_id
            .and_then(|id| self.module.annotations.get(&id));
        let mut each: Vec<&Instruction> = annotations
            .into_iter()
            .flatten()
            .filter_map(|at| self.module.list.get(*at))
            .filter(|one| {
                let is_name = one
                    .operands
                    .contains(&Operand::Decoration(Decoration::LinkageAttributes));
                !(is_name && without_names)
            })
            .collect();
        // The order of annotations means nothing.
        each.sort_by_key(|one| one.assemble().split_off(1));
        for one in each {
            self.hash.update(b"\xffannotation");
            self.hash.update(&(one.class.opcode as u32).to_le_bytes());
            one.operands
                .iter()
                .skip(1)
                .for_each(|operand| self.operand(operand));
        }
    }

    /// Adds an instruction without its annotations.
    fn all(&mut self, one: Option<&Instruction>) {
        let Some(one) = one else { return };
        self.hash.update(b"\xffinstruction");
        self.hash.update(&(one.class.opcode as u32).to_le_bytes());
        if let Some(id) = one.result_type {
            self.id(id);
        }
        if let Some(id) = one.result_id.filter(|id| self.own.contains(id)) {
            self.id(id);
        }
        one.operands
            .iter()
            .for_each(|operand| self.operand(operand));
    }

    fn operand(&mut self, operand: &Operand) {
        match operand {
            Operand::IdRef(id) | Operand::IdScope(id) | Operand::IdMemorySemantics(id) => {
                self.id(*id);
            }
            // The name of a function in another module, or of a set of instructions.
            Operand::LiteralString(text) => add_name(&mut self.hash, text.as_bytes()),
            _ => {
                for word in operand.assemble() {
                    self.hash.update(&word.to_le_bytes());
                }
            }
        }
    }

    fn id(&mut self, id: u32) {
        if self.own.contains(&id) {
            let next = self.numbers.len() as u64;
            let number = *self.numbers.entry(id).or_insert(next);
            self.hash.update(b"\xfflocal");
            self.hash.update(&number.to_le_bytes());
        } else {
            self.hash.update(b"\xfflink");
            self.targets.push(u64::from(id));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rspirv::dr::Builder;
    use rspirv::spirv::{
        AddressingModel, Capability, ExecutionModel, FunctionControl, MemoryModel,
    };

    /// A module with an entry point that adds a constant. `before` constants come first, so that all
    /// numbers differ.
    fn module(before: u32, value: u32) -> Vec<u8> {
        let mut builder = Builder::new();
        builder.set_version(1, 0);
        builder.capability(Capability::Kernel);
        builder.memory_model(AddressingModel::Physical64, MemoryModel::OpenCL);
        let (void, int) = (builder.type_void(), builder.type_int(32, 0));
        for unused in 0..before {
            builder.constant_bit32(int, 100 + unused);
        }
        let constant = builder.constant_bit32(int, value);
        let kind = builder.type_function(void, [int]);
        let function = builder
            .begin_function(void, None, FunctionControl::NONE, kind)
            .unwrap();
        let parameter = builder.function_parameter(int).unwrap();
        builder.begin_block(None).unwrap();
        builder.i_add(int, None, parameter, constant).unwrap();
        builder.ret().unwrap();
        builder.end_function().unwrap();
        builder.name(function, format!("debug {before}"));
        builder.entry_point(ExecutionModel::Kernel, function, "kernel", []);
        let words = builder.module().assemble();
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn numbers_of_a_module_do_not_count_and_constants_do() {
        let digest = |before, value| digests(&module(before, value))["kernel"];
        assert_eq!(digest(0, 1), digest(3, 1));
        assert_ne!(digest(0, 1), digest(0, 2));
    }

    #[test]
    fn damaged_modules_do_not_panic() {
        let whole = module(2, 1);
        for at in 0..whole.len() {
            for value in [0, 1, 0x7f, 0xff, whole[at] ^ 1, whole[at] ^ 0x10] {
                let mut damaged = whole.clone();
                damaged[at] = value;
                digests(&damaged);
            }
            digests(&whole[..at]);
        }
    }
}
