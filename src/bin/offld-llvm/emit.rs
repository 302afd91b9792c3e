//! Translates a registration `Plan` to an LLVM module, and the module to text, object, assembly or
//! bitcode. `offload_formats::registration` decides the contents of the registration. The module's
//! text equals that of LLVM 22's wrapper, except for its `target datalayout` and the differences
//! that `tests` lists. This file has the code that the offload kinds share; each kind has its own
//! file.

use super::{Host, QuietContext, emit_fatbin, emit_openmp, emit_sycl};
use anyhow::{Context as _, Result, anyhow, bail};
use inkwell::attributes::AttributeLoc;
use inkwell::builder::Builder;
use inkwell::context::Context;
use inkwell::llvm_sys::core::LLVMArrayType2;
use inkwell::memory_buffer::MemoryBuffer;
use inkwell::module::{FlagBehavior, Linkage, Module};
use inkwell::targets::{ByteOrdering, FileType, TargetTriple};
use inkwell::types::{
    ArrayType, AsTypeRef, BasicMetadataTypeEnum, BasicType, BasicTypeEnum, IntType, StructType,
};
use inkwell::values::{
    BasicMetadataValueEnum, BasicValueEnum, FunctionValue, GlobalValue, PointerValue,
};
use inkwell::{AddressSpace, GlobalVisibility};
use object::elf::{
    GNU_PROPERTY_AARCH64_FEATURE_1_BTI, GNU_PROPERTY_AARCH64_FEATURE_1_PAC,
    GNU_PROPERTY_X86_FEATURE_1_IBT, GNU_PROPERTY_X86_FEATURE_1_SHSTK, SHT_PROGBITS,
};
use object::{File, Object as _, ObjectSection as _};
use offload_formats::elf::notes::AARCH64_GCS;
use offload_formats::elf::raw::FileHeader;
use offload_formats::model::Generation;
use offload_formats::offload_entries::{Bounds, BoundsDefined, Field, Retention, Struct};
use offload_formats::offload_sections;
use offload_formats::registration::host::Family;
use offload_formats::registration::openmp;
use offload_formats::registration::{
    self, FUNCTION_SECTION, ImagePlace, Images, LATER, MODULE, Plan, fatbin,
};
use std::cell::RefCell;

/// Code that loads images from files beside the program. It is written in C
/// (`external_images/loader.c`), compiled by `scripts/external-images.sh`, and linked into the
/// module.
const LOADER: &str = include_str!("external_images/loader.ll");
/// Loads the images of OpenMP. The fatbinary contracts name the functions of CUDA and HIP.
const LOAD_OPENMP: &str = "offld_external_openmp";
/// Removes the images from memory.
const UNLOAD: &str = "offld_external_unload";

/// Returns the registration code of `plan` as LLVM prints it.
pub(crate) fn print_module(plan: &Plan) -> Result<String> {
    with_module(plan, Usage::Module, |module, _| {
        Ok(module.print_to_string().to_string_lossy().into_owned())
    })
}

/// Returns the registration code of `plan` as an object for its host.
pub(crate) fn compile(plan: &Plan) -> Result<Vec<u8>> {
    with_module(plan, Usage::Object, |module, host| {
        let mut object = generate(module, host, FileType::Object)?;
        if plan.relocatable && !host.coff && holds_openmp_images(plan) {
            hide_images(&mut object).context("cannot hide the images of a relocatable link")?;
        }
        Ok(object)
    })
}

/// Returns the registration code of `plan` as assembly for its host.
pub(crate) fn compile_assembly(plan: &Plan) -> Result<Vec<u8>> {
    with_module(plan, Usage::Assembly, |module, host| {
        generate(module, host, FileType::Assembly)
    })
}

fn generate(module: &Module<'_>, host: &Host, kind: FileType) -> Result<Vec<u8>> {
    // The code generator also reads the triple of the module, and does not support abbreviated
    // triples.
    module.set_triple(&host.machine.get_triple());
    let buffer = host
        .machine
        .write_to_memory_buffer(module, kind)
        .map_err(|error| anyhow!("{error}"))?;
    // inkwell's buffer ends with a zero that is not part of the object.
    Ok(buffer.as_slice()[..buffer.get_size()].to_vec())
}

/// Returns the registration code of `plan` as bitcode.
pub(crate) fn compile_bitcode(plan: &Plan) -> Result<Vec<u8>> {
    with_module(plan, Usage::Module, |module, _| {
        let buffer = module.write_bitcode_to_memory();
        Ok(buffer.as_slice()[..buffer.get_size()].to_vec())
    })
}

/// The purpose of a module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Usage {
    /// Printed, or read by another LLVM.
    Module,
    /// Assembly, generated in this process.
    Assembly,
    /// An object, generated in this process.
    Object,
}

fn with_module<T>(
    plan: &Plan,
    usage: Usage,
    then: impl FnOnce(&Module<'_>, &Host) -> Result<T>,
) -> Result<T> {
    let host = Host::new(&plan.host_triple)?;
    let context = QuietContext::new();
    let module = Emitter::new(context.llvm(), plan, &host, usage).emit()?;
    module
        .verify()
        .map_err(|error| anyhow!("LLVM rejects the registration code: {error}"))?;
    let value = then(&module, &host)?;
    match context.error() {
        Some(error) => bail!("{error}"),
        None => Ok(value),
    }
}

/// Whether the module contains OpenMP images in a section. Large images are in a separate object
/// instead.
fn holds_openmp_images(plan: &Plan) -> bool {
    let Images::OpenMp(images) = &plan.images else {
        return false;
    };
    images
        .iter()
        .any(|image| matches!(image.place, ImagePlace::Inline(_)))
}

/// Changes the type of `.llvm.offloading.relocatable` to PROGBITS. LLVM gives it the type that
/// wrappers search for images to extract. But a `-r` link has linked these images already, so a
/// later link must ignore them (docs/spec/faults.md F17).
fn hide_images(object: &mut [u8]) -> Result<()> {
    let section = File::parse(&*object)?
        .section_by_name(offload_sections::RELOCATABLE)
        .context("no image section")?
        .index();
    let (class, head) = FileHeader::read(object)?;
    // The type is the second field.
    let at = head.section_header_at(class, section.0) as usize + 4;
    object
        .get_mut(at..at + 4)
        .context("section header past the end")?
        .copy_from_slice(&class.word_bytes(SHT_PROGBITS.0));
    Ok(())
}

/// A kind of control-flow protection with its encoding in LLVM modules.
struct Protection {
    family: Family,
    /// The bit of the GNU property that the objects of a program have in common.
    bit: u32,
    /// The flag of the module, and its value.
    flag: (&'static str, u64),
    /// The attributes of each function.
    attributes: &'static [(&'static str, &'static str)],
}

/// The kinds of control-flow protection, in clang's order.
const PROTECTIONS: [Protection; 5] = [
    Protection {
        family: Family::X86,
        bit: GNU_PROPERTY_X86_FEATURE_1_SHSTK,
        flag: ("cf-protection-return", 1),
        attributes: &[],
    },
    Protection {
        family: Family::X86,
        bit: GNU_PROPERTY_X86_FEATURE_1_IBT,
        flag: ("cf-protection-branch", 1),
        attributes: &[],
    },
    Protection {
        family: Family::AArch64,
        bit: GNU_PROPERTY_AARCH64_FEATURE_1_BTI,
        flag: ("branch-target-enforcement", 2),
        attributes: &[("branch-target-enforcement", "")],
    },
    Protection {
        family: Family::AArch64,
        bit: AARCH64_GCS,
        flag: ("guarded-control-stack", 2),
        attributes: &[("guarded-control-stack", "")],
    },
    Protection {
        family: Family::AArch64,
        bit: GNU_PROPERTY_AARCH64_FEATURE_1_PAC,
        flag: ("sign-return-address", 2),
        attributes: &[
            ("sign-return-address", "non-leaf"),
            ("sign-return-address-key", "a_key"),
        ],
    },
];

/// The state during the generation of a module.
pub(super) struct Emitter<'ctx, 'a> {
    pub(super) context: &'ctx Context,
    pub(super) module: Module<'ctx>,
    pub(super) host: &'a Host,
    plan: &'a Plan,
    usage: Usage,
    /// Variables of an object that the compiler must not remove or change.
    used: RefCell<Vec<PointerValue<'ctx>>>,
}

impl<'ctx, 'a> Emitter<'ctx, 'a> {
    fn new(context: &'ctx Context, plan: &'a Plan, host: &'a Host, usage: Usage) -> Self {
        let name = match &plan.images {
            Images::OpenMp(_) => openmp::registration(plan.generation, host.coff).module,
            _ => MODULE,
        };
        let module = context.create_module(name);
        module.set_triple(&TargetTriple::create(&plan.host_triple));
        module.set_data_layout(&host.data.get_data_layout());
        Emitter {
            context,
            module,
            host,
            plan,
            usage,
            used: RefCell::default(),
        }
    }

    /// Whether this process generates code from the module.
    fn to_code(&self) -> bool {
        self.usage != Usage::Module
    }

    fn emit(self) -> Result<Module<'ctx>> {
        let (generation, coff) = (self.plan.generation, self.host.coff);
        let table = self.plan.images.table();
        match &self.plan.images {
            Images::OpenMp(images) => {
                let how = openmp::registration(generation, coff);
                emit_openmp::emit(&self, &how, images, table)
            }
            Images::Cuda(file) => {
                let how = fatbin::cuda(generation, coff);
                emit_fatbin::emit(&self, &how, file, &self.plan.modules)
            }
            Images::Hip(file) => {
                let how = fatbin::hip(generation, coff);
                emit_fatbin::emit(&self, &how, file, &self.plan.modules)
            }
            Images::Sycl(images) => emit_sycl::emit(&self, images),
            Images::SyclBinary(place, release) => emit_sycl::emit_binary(&self, place, *release),
        }?;
        if table.is_some() {
            self.link_loader()?;
        }
        let used = self.used.take();
        if !used.is_empty() {
            self.compiler_used(&used);
        }
        self.protect()?;
        if let Some(abi) = self
            .host
            .abi
            .filter(|_| self.plan.host_triple.starts_with("riscv"))
        {
            // Without the flag, a linker that compiles the bitcode would use another ABI for this
            // module than for the others.
            self.module.add_metadata_flag(
                "target-abi",
                FlagBehavior::Error,
                self.context.metadata_string(abi),
            );
        }
        Ok(self.module)
    }

    /// Marks the module as compatible with the control-flow protection of the program's objects,
    /// with the flags that clang writes (`-fcf-protection`, `-mbranch-protection`).
    fn protect(&self) -> Result<()> {
        // The smallest value of all linked modules counts.
        const MIN: u64 = 8;
        let int = |value| self.context.i32_type().const_int(value, false);
        for (name, value) in self.protections().map(|protection| protection.flag) {
            let flag = self.context.metadata_node(&[
                int(MIN).into(),
                self.context.metadata_string(name).into(),
                int(value).into(),
            ]);
            self.module
                .add_global_metadata("llvm.module.flags", &flag)
                .map_err(|error| anyhow!("{error}"))?;
        }
        Ok(())
    }

    /// Returns the kinds of control-flow protection of the module.
    fn protections(&self) -> impl Iterator<Item = &'static Protection> {
        let family = registration::host::family(&self.plan.host_triple);
        let all = PROTECTIONS
            .iter()
            .filter(move |protection| Some(protection.family) == family);
        all.filter(|protection| self.plan.protection & protection.bit != 0)
    }

    /// Returns the start and stop symbols of the entry table, and adds the variable that makes the
    /// linker define them.
    pub(super) fn bounds(&self, bounds: &Bounds, entry: Struct) -> [PointerValue<'ctx>; 2] {
        let entry = self.struct_type(entry);
        let none = entry.array_type(0);
        let kind: BasicTypeEnum<'ctx> = if bounds.array {
            none.into()
        } else {
            entry.into()
        };
        let names = [&bounds.start, &bounds.stop];
        let symbols = names.map(|name| {
            let symbol = self.constant(name, kind, Linkage::External);
            symbol.set_visibility(GlobalVisibility::Hidden);
            symbol
        });
        match &bounds.defined {
            BoundsDefined::BySortedSections {
                start,
                stop,
                after: (section, name),
            } => {
                // Printed modules have the same text as LLVM's, unless LLVM's do not work.
                let adds_comdats = self.to_code() || self.plan.generation == Generation::Llvm14;
                for (symbol, section) in symbols.iter().zip([start, stop]) {
                    symbol.set_linkage(Linkage::WeakODR);
                    symbol.set_initializer(&none.const_zero());
                    symbol.set_section(Some(section));
                    if adds_comdats {
                        symbol.set_comdat(
                            self.module
                                .get_or_insert_comdat(&symbol.get_name().to_string_lossy()),
                        );
                    }
                }
                if adds_comdats {
                    let byte = self.context.i8_type();
                    let keeper = self.constant(name, byte, Linkage::Internal);
                    keeper.set_initializer(&byte.const_zero());
                    keeper.set_section(Some(section));
                }
            }
            BoundsDefined::ByLinker(dummy) => {
                let table = self.constant(&dummy.name, none, Linkage::Internal);
                table.set_initializer(&none.const_zero());
                table.set_section(Some(dummy.section));
                if let Some(align) = dummy.align {
                    table.set_alignment(align);
                }
                match dummy.retention {
                    Retention::Weak => {
                        table.set_linkage(Linkage::WeakAny);
                        table.set_visibility(GlobalVisibility::Hidden);
                    }
                    Retention::CompilerUsed if self.usage == Usage::Object => {
                        self.used.borrow_mut().push(table.as_pointer_value())
                    }
                    Retention::CompilerUsed => self.compiler_used(&[table.as_pointer_value()]),
                }
            }
        }
        symbols.map(GlobalValue::as_pointer_value)
    }

    /// Returns the variable `name` with the bytes of an image, in the section of its kind if
    /// `in_section`, or a reference to an external image.
    pub(super) fn image(
        &self,
        name: &str,
        place: &ImagePlace,
        in_section: bool,
    ) -> GlobalValue<'ctx> {
        let kind = self.byte_array(place.array_length());
        if let ImagePlace::External { symbol, .. } | ImagePlace::Between { start: symbol, .. } =
            place
        {
            return self.elsewhere(symbol, kind);
        }
        let global = self.constant(name, kind, Linkage::Internal);
        let section = in_section.then(|| registration::plan_section(self.plan));
        if let Some(section) = section {
            global.set_section(Some(section.name));
            global.set_alignment(section.align);
        }
        match place {
            ImagePlace::Inline(bytes) => {
                global.set_initializer(&self.context.const_string(bytes, false))
            }
            _ => global.set_initializer(&kind.const_zero()),
        }
        if self.usage == Usage::Object && matches!(place, ImagePlace::Later { .. }) {
            self.without_contents(global);
        }
        global
    }

    /// Declares a constant that another object defines.
    pub(super) fn elsewhere(&self, symbol: &str, kind: impl BasicType<'ctx>) -> GlobalValue<'ctx> {
        let global = self.constant(symbol, kind, Linkage::External);
        global.set_visibility(GlobalVisibility::Hidden);
        global
    }

    /// Puts an image of zeros into a section without contents. On ELF, the section's name selects
    /// it. On COFF, variables of zeros are in such a section (`.bss`), and no other variable may be
    /// in it.
    fn without_contents(&self, global: GlobalValue<'ctx>) {
        let section = registration::deferred_section(self.plan, self.host.coff);
        if self.host.coff {
            global.set_constant(false);
            global.set_section(None);
        } else {
            global.set_section(Some(&format!("{LATER}{}", section.name)));
        }
        global.set_alignment(section.align);
        // LLVM for PowerPC would merge several small variables into one.
        self.used.borrow_mut().push(global.as_pointer_value());
    }

    /// Defines a function. Returns it with a builder at its start.
    pub(super) fn function(
        &self,
        name: &str,
        parameters: &[BasicMetadataTypeEnum<'ctx>],
    ) -> (FunctionValue<'ctx>, Builder<'ctx>) {
        let kind = self.context.void_type().fn_type(parameters, false);
        let function = self
            .module
            .add_function(name, kind, Some(Linkage::Internal));
        function
            .as_global_value()
            .set_section(Some(FUNCTION_SECTION));
        self.add_attributes(function);
        let builder = self.context.create_builder();
        builder.position_at_end(self.context.append_basic_block(function, "entry"));
        (function, builder)
    }

    /// Adds the attributes that each function of the module has.
    fn add_attributes(&self, function: FunctionValue<'ctx>) {
        if !self.host.features.is_empty() {
            // The ABI requires the features, and another program may compile the bitcode.
            let features = self
                .context
                .create_string_attribute("target-features", self.host.features);
            function.add_attribute(AttributeLoc::Function, features);
        }
        for (name, value) in self
            .protections()
            .flat_map(|protection| protection.attributes)
        {
            function.add_attribute(
                AttributeLoc::Function,
                self.context.create_string_attribute(name, value),
            );
        }
    }

    /// Declares a function of the runtime that takes a pointer.
    pub(super) fn runtime(&self, name: &str) -> FunctionValue<'ctx> {
        self.module.add_function(
            name,
            self.context
                .void_type()
                .fn_type(&[self.pointer().into()], false),
            None,
        )
    }

    /// Declares `int atexit(void (*)(void))`, or the function that it calls:
    /// `int __cxa_atexit(void (*)(void *), void *, void *)`. glibc links `atexit` into each program
    /// from a static library. Many distributions compile that library without control-flow
    /// protection, so the whole program would lose the protection.
    pub(super) fn at_exit(&self) -> FunctionValue<'ctx> {
        let pointer = self.pointer().into();
        let kind = |parameters: &[_]| self.context.i32_type().fn_type(parameters, false);
        match self.is_protected() {
            true => self
                .module
                .add_function("__cxa_atexit", kind(&[pointer; 3]), None),
            false => self.module.add_function("atexit", kind(&[pointer]), None),
        }
    }

    pub(super) fn call_at_exit(
        &self,
        builder: &Builder<'ctx>,
        at_exit: FunctionValue<'ctx>,
        function: FunctionValue<'ctx>,
    ) -> Result<()> {
        let function = function.as_global_value().as_pointer_value();
        if !self.is_protected() {
            builder.build_call(at_exit, &[function.into()], "")?;
            return Ok(());
        }
        // As in `atexit`: the handle of this library or program, if its start files define one.
        let pointer = self.pointer();
        let none = self.constant(".offload.no_handle", pointer, Linkage::Private);
        none.set_initializer(&pointer.const_null());
        let handle = self.module.add_global(pointer, None, "__dso_handle");
        handle.set_linkage(Linkage::ExternalWeak);
        handle.set_visibility(GlobalVisibility::Hidden);
        let (handle, none) = (handle.as_pointer_value(), none.as_pointer_value());
        let is_there = builder.build_is_not_null(handle, "")?;
        let place = builder
            .build_select(is_there, handle, none, "")?
            .into_pointer_value();
        let handle = builder.build_load(pointer, place, "")?;
        builder.build_call(
            at_exit,
            &[function.into(), pointer.const_null().into(), handle.into()],
            "",
        )?;
        Ok(())
    }

    /// Whether the module has any control-flow protection.
    fn is_protected(&self) -> bool {
        self.protections().next().is_some()
    }

    /// Makes `function` run before `main`.
    pub(super) fn at_start(&self, function: FunctionValue<'ctx>, priority: u32) {
        self.structors("llvm.global_ctors", ".init_array", function, priority);
    }

    /// Makes `function` run at exit.
    pub(super) fn at_end(&self, function: FunctionValue<'ctx>, priority: u32) {
        self.structors("llvm.global_dtors", ".fini_array", function, priority);
    }

    /// Makes `function` run at start or exit. LLVM's C API has no option for `.init_array`. Without
    /// it, `llvm.global_ctors` becomes the section `.ctors`, which lld ignores. So in objects the
    /// section is set by name.
    fn structors(&self, list: &str, section: &str, function: FunctionValue<'ctx>, priority: u32) {
        let (int, pointer) = (self.context.i32_type(), self.pointer());
        let function = function.as_global_value().as_pointer_value();
        if self.to_code() && !self.host.coff {
            let entry = self.constant(section, pointer, Linkage::Private);
            entry.set_initializer(&function);
            entry.set_section(Some(&format!("{section}.{}", priority)));
            return;
        }
        let kind = self
            .context
            .struct_type(&[int.into(), pointer.into(), pointer.into()], false);
        let priority = int.const_int(u64::from(priority), false);
        let row = kind.const_named_struct(&[
            priority.into(),
            function.into(),
            pointer.const_null().into(),
        ]);
        self.appending(list, kind.const_array(&[row]).into());
    }

    /// On COFF, moves a variable of zeros out of the section that must contain only images.
    pub(super) fn keep_apart(&self, global: GlobalValue<'ctx>) {
        // On COFF, the list of used symbols contains only the images of that section.
        if self.host.coff && !self.used.borrow().is_empty() {
            global.set_section(Some(".data"));
        }
    }

    fn compiler_used(&self, symbols: &[PointerValue<'ctx>]) {
        let list = self.appending(
            "llvm.compiler.used",
            self.pointer().const_array(symbols).into(),
        );
        list.set_section(Some("llvm.metadata"));
    }

    fn appending(&self, name: &str, value: BasicValueEnum<'ctx>) -> GlobalValue<'ctx> {
        let global = self.module.add_global(value.get_type(), None, name);
        global.set_linkage(Linkage::Appending);
        global.set_initializer(&value);
        global
    }

    pub(super) fn constant<T: BasicType<'ctx>>(
        &self,
        name: &str,
        kind: T,
        linkage: Linkage,
    ) -> GlobalValue<'ctx> {
        let global = self.module.add_global(kind, None, name);
        global.set_linkage(linkage);
        global.set_constant(true);
        global
    }

    /// Adds a variable of this module that code changes.
    pub(super) fn variable(&self, name: &str, value: BasicValueEnum<'ctx>) -> PointerValue<'ctx> {
        let global = self.module.add_global(value.get_type(), None, name);
        global.set_linkage(Linkage::Internal);
        global.set_initializer(&value);
        global.as_pointer_value()
    }

    pub(super) fn pointer(&self) -> inkwell::types::PointerType<'ctx> {
        self.context.ptr_type(AddressSpace::default())
    }

    /// `size_t`.
    pub(super) fn size_type(&self) -> IntType<'ctx> {
        self.context.ptr_sized_int_type(&self.host.data, None)
    }

    pub(super) fn struct_type(&self, (name, fields): Struct) -> StructType<'ctx> {
        if let Some(kind) = self.context.get_struct_type(name) {
            return kind;
        }
        let fields: Vec<BasicTypeEnum<'ctx>> = fields
            .iter()
            .map(|field| match field {
                Field::U8 => self.context.i8_type().into(),
                Field::U16 => self.context.i16_type().into(),
                Field::U32 => self.context.i32_type().into(),
                Field::U64 => self.context.i64_type().into(),
                Field::Size => self.size_type().into(),
                Field::Pointer => self.pointer().into(),
            })
            .collect();
        let kind = self.context.opaque_struct_type(name);
        kind.set_body(&fields, false);
        kind
    }

    /// Returns an array type of bytes. inkwell's function has a 32-bit length, but images may be
    /// larger than 4 GiB.
    pub(super) fn byte_array(&self, size: u64) -> ArrayType<'ctx> {
        #[expect(
            unsafe_code,
            reason = "LLVM's C API; the type belongs to the context that creates it"
        )]
        unsafe {
            ArrayType::new(LLVMArrayType2(self.context.i8_type().as_type_ref(), size))
        }
    }

    /// Returns the address `offset` bytes into an image.
    pub(super) fn offset(
        &self,
        bytes: PointerValue<'ctx>,
        of: &ImagePlace,
        offset: u64,
        in_bounds: bool,
    ) -> PointerValue<'ctx> {
        let kind = self.byte_array(of.array_length());
        let int = |value| self.context.i64_type().const_int(value, false);
        #[expect(
            unsafe_code,
            reason = "the two indices fit the array type, and callers have checked the offset"
        )]
        unsafe {
            match (in_bounds, offset == of.size()) {
                (true, true) => bytes.const_in_bounds_gep(kind, &[int(1), int(0)]),
                (true, false) => bytes.const_in_bounds_gep(kind, &[int(0), int(offset)]),
                (false, _) => bytes.const_gep(kind, &[int(0), int(offset)]),
            }
        }
    }
}

/// Images in files beside the program (`LOADER`).
impl<'ctx> Emitter<'ctx, '_> {
    /// Emits the call that fills `rows` with the images of OpenMP that `table` lists. Returns their
    /// number.
    pub(super) fn load_openmp(
        &self,
        builder: &Builder<'ctx>,
        table: &str,
        rows: PointerValue<'ctx>,
    ) -> Result<BasicValueEnum<'ctx>> {
        let pointer = self.pointer().into();
        let kind = self.context.i32_type().fn_type(&[pointer, pointer], false);
        let function = self.module.add_function(LOAD_OPENMP, kind, None);
        let table = self.table_address(table);
        value_of_call(builder, function, &[table.into(), rows.into()])
    }

    /// Emits the call of `function`, which makes one file for a runtime from the images that `table`
    /// lists. Returns its address.
    pub(super) fn load(
        &self,
        builder: &Builder<'ctx>,
        function: &str,
        table: &str,
    ) -> Result<BasicValueEnum<'ctx>> {
        let pointer = self.pointer();
        let kind = pointer.fn_type(&[pointer.into()], false);
        let function = self.module.add_function(function, kind, None);
        let table = self.table_address(table);
        value_of_call(builder, function, &[table.into()])
    }

    /// Emits the call that removes the images from memory.
    pub(super) fn unload(&self, builder: &Builder<'ctx>) -> Result<()> {
        let kind = self.context.void_type().fn_type(&[], false);
        let function = self.module.add_function(UNLOAD, kind, None);
        builder.build_call(function, &[], "")?;
        Ok(())
    }

    fn table_address(&self, table: &str) -> PointerValue<'ctx> {
        self.elsewhere(table, self.byte_array(0)).as_pointer_value()
    }

    /// Adds the loader to the module. LLVM adds only the functions and constants that the module
    /// uses.
    fn link_loader(&self) -> Result<()> {
        let (module, host) = (&self.module, self.host);
        let is_64_bit_linux = host.data.get_pointer_byte_size(None) == 8
            && host.data.get_byte_ordering() == ByteOrdering::LittleEndian
            && !host.coff;
        if !is_64_bit_linux {
            bail!("images in files need a 64-bit little-endian host with ELF files");
        }
        let text = MemoryBuffer::create_from_memory_range_copy(LOADER.as_bytes(), "loader.ll");
        let loader = self
            .context
            .create_module_from_ir(text)
            .map_err(|error| anyhow!("{error}"))?;
        loader.set_triple(&module.get_triple());
        loader.set_data_layout(&module.get_data_layout());
        let mut names = Vec::new();
        for function in loader.get_functions() {
            if function.count_basic_blocks() == 0 {
                continue;
            }
            self.add_attributes(function);
            if function.get_linkage() == Linkage::External {
                // LLVM leaves out such functions if nothing calls them.
                function.set_linkage(Linkage::LinkOnceODR);
                names.push(function.get_name().to_owned());
            }
        }
        module
            .link_in_module(loader)
            .map_err(|error| anyhow!("{error}"))?;
        for name in names {
            let function = name
                .to_str()
                .ok()
                .and_then(|name| module.get_function(name));
            if let Some(function) = function {
                function.set_linkage(Linkage::Internal);
            }
        }
        Ok(())
    }
}

fn value_of_call<'ctx>(
    builder: &Builder<'ctx>,
    function: FunctionValue<'ctx>,
    arguments: &[BasicMetadataValueEnum<'ctx>],
) -> Result<BasicValueEnum<'ctx>> {
    let call = builder.build_call(function, arguments, "")?;
    call.try_as_basic_value().basic().context("no value")
}
