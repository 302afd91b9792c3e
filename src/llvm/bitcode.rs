//! What a bitcode module holds for an offload linker: embedded device images and symbols. Modules are loaded lazily, so that no
//! function body is ever parsed; old ones go through LLVM's auto-upgrade.
//!
//! What LLVM finds broken is an error. It does not check everything: some corrupt bitcode crashes its reader, here as in clang.

use super::context::QuietContext;
use super::{Embedded, ModuleSymbols, Symbol};
use crate::formats::bitcode_ident::producer_major;
use crate::model::Generation;
use crate::registration::openmp::RELOCATABLE_SECTION;
use anyhow::{Result, anyhow};
use inkwell::GlobalVisibility;
use inkwell::llvm_sys::bit_reader::LLVMGetBitcodeModuleInContext2;
use inkwell::llvm_sys::core::{
    LLVMCreateMemoryBufferWithMemoryRange, LLVMDisposeMemoryBuffer, LLVMGetAsString, LLVMGetDataLayoutStr,
    LLVMGetFirstGlobalAlias, LLVMGetFirstGlobalIFunc, LLVMGetMDNodeNumOperands, LLVMGetMDNodeOperands, LLVMGetMDString,
    LLVMGetModuleInlineAsm, LLVMGetNamedMetadataNumOperands, LLVMGetNamedMetadataOperands, LLVMGetNextGlobalAlias,
    LLVMGetNextGlobalIFunc, LLVMGetValueName2, LLVMIsAConstantDataArray, LLVMIsAGlobalVariable, LLVMIsAMDNode, LLVMIsAMDString,
    LLVMIsConstantString,
};
use inkwell::llvm_sys::prelude::{LLVMModuleRef, LLVMValueRef};
use inkwell::module::{Linkage, Module};
use inkwell::targets::TargetData;
use inkwell::types::{AnyType, AnyTypeEnum, BasicType};
use inkwell::values::{AsValueRef, GlobalValue};
use std::ptr::null_mut;

/// Sections in which LLVM 14 put images, after which the target follows.
const NAMED_SECTION: &str = ".llvm.offloading.";
/// What a bounds symbol's name ends with.
const ENTRIES: [&str; 4] =
    ["llvm_offload_entries", "omp_offloading_entries", "cuda_offloading_entries", "hip_offloading_entries"];

/// The device code embedded in a bitcode module, in the module's order.
pub fn embedded_images(bitcode: &[u8]) -> Result<Vec<Embedded>> {
    with_module(bitcode, |module| {
        let mut found: Vec<Embedded> = listed(module).into_iter().filter_map(|global| contents(global, None)).collect();
        for global in module.get_globals() {
            let section = section(global);
            if section.starts_with(NAMED_SECTION) && section != RELOCATABLE_SECTION {
                found.extend(contents(global, Some(section)));
            }
        }
        found
    })
}

/// The symbols of the object that a bitcode module stands for.
pub fn symbols(bitcode: &[u8]) -> Result<ModuleSymbols> {
    let mut symbols = with_module(bitcode, |module| {
        let mut found = ModuleSymbols { triple: text(module.get_triple().as_str().to_bytes()), ..ModuleSymbols::default() };
        let data = TargetData::create(&data_layout(module));
        let prefix = name_prefix(&data_layout(module));
        module.get_globals().for_each(|global| found.note_entries(global, &data));
        // In the order of LLVM's symbol tables.
        let functions = module.get_functions().map(|function| function.as_global_value());
        for value in functions.chain(module.get_globals()).chain(aliases(module)) {
            found.note(value, prefix);
        }
        for name in identifiers(&inline_asm(module)) {
            found.defined.push(Symbol { name: name.to_owned(), weak: true, common: false, hidden: false });
            found.undefined.push(Symbol { name: name.to_owned(), weak: false, common: false, hidden: false });
        }
        found
    })?;
    // Entries of LLVM 14 look like those of 15, but the registration that goes with them does not.
    if symbols.entries == Some(Generation::Llvm15) && producer_major(bitcode).is_some_and(|major| major < 15) {
        symbols.entries = Some(Generation::Llvm14);
    }
    Ok(symbols)
}

impl ModuleSymbols {
    /// Sorts `value` into defined and undefined.
    fn note(&mut self, value: GlobalValue<'_>, prefix: &str) {
        let raw = name(value);
        // Intrinsics, and lists that only LLVM reads.
        if raw.starts_with("llvm.") || raw.is_empty() {
            return;
        }
        if ENTRIES.iter().any(|entries| raw.strip_prefix("__start_") == Some(entries)) {
            self.refers_to_bounds = true;
        }
        let name = raw.strip_prefix('\u{1}').map_or_else(|| format!("{prefix}{raw}"), str::to_owned);
        let hidden = value.get_visibility() == GlobalVisibility::Hidden;
        let weak = match value.get_linkage() {
            Linkage::Internal | Linkage::Private | Linkage::LinkerPrivate | Linkage::LinkerPrivateWeak => return,
            Linkage::WeakAny | Linkage::WeakODR | Linkage::LinkOnceAny | Linkage::LinkOnceODR | Linkage::ExternalWeak => true,
            Linkage::Common => true,
            _ => false,
        };
        let symbol = Symbol { name, weak, common: value.get_linkage() == Linkage::Common, hidden };
        if value.is_declaration() || value.get_linkage() == Linkage::AvailableExternally {
            self.undefined.push(symbol);
        } else {
            self.defined.push(symbol);
        }
    }

    /// Reads the generation off `global`, if it is an entry.
    fn note_entries(&mut self, global: GlobalValue<'_>, data: &TargetData) {
        let section = section(global);
        // On COFF the linker sorts by what follows the `$`.
        let table = section.split('$').next().unwrap_or_default();
        let size = match global.get_value_type() {
            AnyTypeEnum::StructType(kind) if kind.is_sized() => data.get_abi_size(&kind.as_any_type_enum()),
            // Tables of no entries: a wrapper's dummy or bounds.
            _ => return,
        };
        let generation = match ENTRIES.iter().position(|entries| *entries == table) {
            Some(0) => Generation::Llvm21,
            Some(_) if size > 32 => Generation::Llvm20,
            Some(_) => Generation::Llvm15,
            None => return,
        };
        self.entries = self.entries.max(Some(generation));
    }
}

fn with_module<T>(bitcode: &[u8], read: impl FnOnce(&Module<'_>) -> T) -> Result<T> {
    let context = QuietContext::new();
    let mut module: LLVMModuleRef = null_mut();
    #[expect(unsafe_code, reason = "LLVM's C API; the buffer lends `bitcode`, which outlives it, and goes with the module")]
    let module = unsafe {
        let buffer = LLVMCreateMemoryBufferWithMemoryRange(bitcode.as_ptr().cast(), bitcode.len(), c"bitcode".as_ptr(), 0);
        if LLVMGetBitcodeModuleInContext2(context.llvm().raw(), buffer, &raw mut module) != 0 {
            // Only a module that was made has taken the buffer.
            LLVMDisposeMemoryBuffer(buffer);
            let reason = context.error().unwrap_or_else(|| "not a bitcode module".to_owned());
            return Err(anyhow!("LLVM cannot read this bitcode: {reason}"));
        }
        Module::new(module)
    };
    Ok(read(&module))
}

/// The globals that `!llvm.embedded.objects` lists for `.llvm.offloading`.
fn listed<'ctx>(module: &Module<'ctx>) -> Vec<GlobalValue<'ctx>> {
    const LIST: &std::ffi::CStr = c"llvm.embedded.objects";
    let mut found = Vec::new();
    #[expect(unsafe_code, reason = "LLVM's C API; arrays are as long as it says, and every operand's kind is asked for first")]
    unsafe {
        let mut rows = vec![null_mut(); LLVMGetNamedMetadataNumOperands(module.as_mut_ptr(), LIST.as_ptr()) as usize];
        LLVMGetNamedMetadataOperands(module.as_mut_ptr(), LIST.as_ptr(), rows.as_mut_ptr());
        for row in rows {
            if row.is_null() || LLVMIsAMDNode(row).is_null() {
                continue;
            }
            let mut operands: Vec<LLVMValueRef> = vec![null_mut(); LLVMGetMDNodeNumOperands(row) as usize];
            LLVMGetMDNodeOperands(row, operands.as_mut_ptr());
            let [global, section, ..] = operands[..] else { continue };
            if global.is_null() || section.is_null() || LLVMIsAMDString(section).is_null() {
                continue;
            }
            let mut len = 0;
            let chars = LLVMGetMDString(section, &raw mut len);
            let is_ours = bytes(chars, len as usize) == b".llvm.offloading";
            if is_ours && !LLVMIsAGlobalVariable(global).is_null() {
                found.push(GlobalValue::new(global));
            }
        }
    }
    found
}

/// The bytes of a constant global; none if it has no plain ones.
fn contents(global: GlobalValue<'_>, section: Option<String>) -> Option<Embedded> {
    let value = global.get_initializer()?;
    #[expect(unsafe_code, reason = "LLVM's C API; it is asked for the bytes of what it says is an array of bytes")]
    let bytes = unsafe {
        let value = value.as_value_ref();
        if LLVMIsAConstantDataArray(value).is_null() || LLVMIsConstantString(value) == 0 {
            return None;
        }
        let mut len = 0;
        let chars = LLVMGetAsString(value, &raw mut len);
        bytes(chars, len).to_vec()
    };
    Some(Embedded { section: section.unwrap_or_else(|| ".llvm.offloading".to_owned()), bytes })
}

/// Aliases and indirect functions, which inkwell does not list.
fn aliases<'ctx>(module: &Module<'ctx>) -> Vec<GlobalValue<'ctx>> {
    let mut found = Vec::new();
    #[expect(unsafe_code, reason = "LLVM's C API; the lists end with a null pointer")]
    unsafe {
        let mut alias = LLVMGetFirstGlobalAlias(module.as_mut_ptr());
        while !alias.is_null() {
            found.push(GlobalValue::new(alias));
            alias = LLVMGetNextGlobalAlias(alias);
        }
        let mut ifunc = LLVMGetFirstGlobalIFunc(module.as_mut_ptr());
        while !ifunc.is_null() {
            found.push(GlobalValue::new(ifunc));
            ifunc = LLVMGetNextGlobalIFunc(ifunc);
        }
    }
    found
}

/// inkwell's own stops at a zero.
fn name(value: GlobalValue<'_>) -> String {
    let mut len = 0;
    #[expect(unsafe_code, reason = "LLVM's C API; the name is as long as it says and lives as long as the value")]
    let name = unsafe {
        let chars = LLVMGetValueName2(value.as_value_ref(), &raw mut len);
        bytes(chars, len)
    };
    text(name)
}

fn inline_asm(module: &Module<'_>) -> String {
    let mut len = 0;
    #[expect(unsafe_code, reason = "LLVM's C API; the text is as long as it says and lives as long as the module")]
    let asm = unsafe {
        let chars = LLVMGetModuleInlineAsm(module.as_mut_ptr(), &raw mut len);
        bytes(chars, len)
    };
    text(asm)
}

fn data_layout(module: &Module<'_>) -> String {
    #[expect(unsafe_code, reason = "LLVM's C API; a C string that lives as long as the module")]
    let layout = unsafe { std::ffi::CStr::from_ptr(LLVMGetDataLayoutStr(module.as_mut_ptr())) };
    text(layout.to_bytes())
}

fn section(global: GlobalValue<'_>) -> String {
    text(global.get_section().map_or(&[][..], std::ffi::CStr::to_bytes))
}

/// What a data layout puts before names: `m:o` is Mach-O, `m:x` COFF on i386.
fn name_prefix(layout: &str) -> &'static str {
    if layout.split('-').any(|part| part == "m:o" || part == "m:x") { "_" } else { "" }
}

/// Everything in assembly that could be a symbol: without parsing it, each may be defined there and may be used there.
fn identifiers(asm: &str) -> impl Iterator<Item = &str> {
    let inside = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '$');
    asm.split(move |c| !inside(c)).filter(|word| !word.is_empty() && !word.starts_with(|c: char| c.is_ascii_digit()))
}

#[expect(unsafe_code, reason = "every caller hands over what LLVM said, in the expression in which it said it")]
unsafe fn bytes<'a>(start: *const std::ffi::c_char, len: usize) -> &'a [u8] {
    if start.is_null() || len == 0 {
        return &[];
    }
    unsafe { std::slice::from_raw_parts(start.cast(), len) }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
