//! A `Plan` as a module of LLVM's, and that as text, object or bitcode. The one translator; what there is to say is in
//! `wrap::openmp`, and the module is LLVM 22's to the letter, but for its `target datalayout` (fault F31).

use super::context::QuietContext;
use super::host::Host;
use crate::wrap::openmp::{self, BoundsDefined, Field, Kept, Registration, Undo};
use crate::wrap::{ImagePlace, Plan, PlannedImage};
use anyhow::{Context as _, Result, anyhow, bail};
use inkwell::attributes::AttributeLoc;
use inkwell::builder::Builder;
use inkwell::context::Context;
use inkwell::llvm_sys::core::LLVMArrayType2;
use inkwell::module::{FlagBehavior, Linkage, Module};
use inkwell::targets::{FileType, TargetTriple};
use inkwell::types::{ArrayType, AsTypeRef, BasicType, BasicTypeEnum, StructType};
use inkwell::values::{BasicValueEnum, FunctionValue, GlobalValue, PointerValue};
use inkwell::{AddressSpace, GlobalVisibility};
use object::elf::{FileHeader32, FileHeader64, SHT_PROGBITS};
use object::read::elf::FileHeader;
use object::{Endian, Endianness, FileKind};

/// The registration code of `plan` as LLVM prints it.
pub fn print_module(plan: &Plan) -> Result<String> {
    with_module(plan, false, |module, _| Ok(module.print_to_string().to_string_lossy().into_owned()))
}

/// The registration code of `plan` as an object of its host.
pub fn compile(plan: &Plan) -> Result<Vec<u8>> {
    with_module(plan, true, |module, host| {
        // The code generator asks the module as well, and does not see through shortened triples.
        module.set_triple(&host.machine.get_triple());
        let buffer = host.machine.write_to_memory_buffer(module, FileType::Object).map_err(|error| anyhow!("{error}"))?;
        // inkwell counts a terminating zero that is not part of the object.
        let mut object = buffer.as_slice()[..buffer.get_size()].to_vec();
        if plan.relocatable && !host.coff {
            hide_images(&mut object).context("cannot hide the images of a relocatable link")?;
        }
        Ok(object)
    })
}

/// The registration code of `plan` as bitcode.
pub fn compile_bitcode(plan: &Plan) -> Result<Vec<u8>> {
    with_module(plan, false, |module, _| {
        let buffer = module.write_bitcode_to_memory();
        Ok(buffer.as_slice()[..buffer.get_size()].to_vec())
    })
}

fn with_module<T>(plan: &Plan, to_object: bool, then: impl FnOnce(&Module<'_>, &Host) -> Result<T>) -> Result<T> {
    let host = Host::new(&plan.host_triple)?;
    let context = QuietContext::new();
    let module = Emitter::new(context.llvm(), plan, &host, to_object).emit()?;
    module.verify().map_err(|error| anyhow!("the registration code is broken: {error}"))?;
    let value = then(&module, &host)?;
    match context.error() {
        Some(error) => bail!("{error}"),
        None => Ok(value),
    }
}

/// LLVM gives `.llvm.offloading.relocatable` the type of sections that images are extracted from, whatever their name; what
/// `-r` has linked must be left alone (fault F17).
fn hide_images(object: &mut [u8]) -> Result<()> {
    let is_64 = FileKind::parse(&*object)? == FileKind::Elf64;
    let (at, endian) = if is_64 { type_field::<FileHeader64<_>>(object)? } else { type_field::<FileHeader32<_>>(object)? };
    let kind = SHT_PROGBITS.0;
    let bytes = if endian.is_little_endian() { kind.to_le_bytes() } else { kind.to_be_bytes() };
    object.get_mut(at..at + 4).context("section header past the end")?.copy_from_slice(&bytes);
    Ok(())
}

/// Where the type of the section of images is in an object, and how its numbers are written.
fn type_field<Elf: FileHeader<Endian = Endianness>>(object: &[u8]) -> Result<(usize, Endianness)> {
    let header = Elf::parse(object)?;
    let endian = header.endian()?;
    let sections = header.sections(endian, object)?;
    let named = |section: &Elf::SectionHeader| {
        sections.section_name(endian, section).is_ok_and(|name| name == openmp::RELOCATABLE_SECTION.as_bytes())
    };
    let index = sections.iter().position(named).context("no section of images")?;
    let table: usize = header.e_shoff(endian).into().try_into()?;
    Ok((table + index * usize::from(header.e_shentsize(endian)) + 4, endian))
}

/// What is at hand while a module is made.
struct Emitter<'ctx, 'a> {
    context: &'ctx Context,
    module: Module<'ctx>,
    plan: &'a Plan,
    host: &'a Host,
    how: Registration,
    /// The module's code is made here and now.
    to_object: bool,
}

impl<'ctx> Emitter<'ctx, '_> {
    fn new<'a>(context: &'ctx Context, plan: &'a Plan, host: &'a Host, to_object: bool) -> Emitter<'ctx, 'a> {
        let how = openmp::registration(plan.generation, host.coff);
        let module = context.create_module(how.module);
        module.set_triple(&TargetTriple::create(&plan.host_triple));
        module.set_data_layout(&host.data.get_data_layout());
        Emitter { context, module, plan, host, how, to_object }
    }

    fn emit(self) -> Result<Module<'ctx>> {
        let bounds = self.bounds();
        let images = self.images(bounds)?;
        let descriptor = self.descriptor(images, bounds);
        let infos = if self.how.image_infos { self.image_infos() } else { Vec::new() };
        self.functions(descriptor, &infos)?;
        if let Some(abi) = self.host.abi.filter(|_| self.plan.host_triple.starts_with("riscv")) {
            // Without it, a linker that compiles the bitcode would take another ABI for this module than for its siblings.
            self.module.add_metadata_flag("target-abi", FlagBehavior::Error, self.context.metadata_string(abi));
        }
        Ok(self.module)
    }

    /// The symbols around the entry table, and what makes the linker define them.
    fn bounds(&self) -> [PointerValue<'ctx>; 2] {
        let entry = self.struct_type(self.how.entry);
        let none = entry.array_type(0);
        let kind: BasicTypeEnum<'ctx> = if self.how.bounds.array { none.into() } else { entry.into() };
        let names = [&self.how.bounds.start, &self.how.bounds.stop];
        let symbols = names.map(|name| {
            let symbol = self.constant(name, kind, Linkage::External);
            symbol.set_visibility(GlobalVisibility::Hidden);
            symbol
        });
        match &self.how.bounds.defined {
            BoundsDefined::BySortedSections { start, stop } => {
                for (symbol, section) in symbols.iter().zip([start, stop]) {
                    symbol.set_linkage(Linkage::WeakODR);
                    symbol.set_initializer(&none.const_zero());
                    symbol.set_section(Some(section));
                }
            }
            BoundsDefined::ByLinker(dummy) => {
                let table = self.constant(&dummy.name, none, Linkage::Internal);
                table.set_initializer(&none.const_zero());
                table.set_section(Some(dummy.section));
                if let Some(align) = dummy.align {
                    table.set_alignment(align);
                }
                match dummy.kept {
                    Kept::External => {
                        table.set_linkage(Linkage::External);
                        table.set_visibility(GlobalVisibility::Hidden);
                    }
                    Kept::CompilerUsed => {
                        let used = self.pointer().const_array(&[table.as_pointer_value()]);
                        let list = self.appending("llvm.compiler.used", used.into());
                        list.set_section(Some("llvm.metadata"));
                    }
                }
            }
        }
        symbols.map(GlobalValue::as_pointer_value)
    }

    /// The images, and the array that lists them.
    fn images(&self, bounds: [PointerValue<'ctx>; 2]) -> Result<PointerValue<'ctx>> {
        let placed: Vec<_> = self.plan.images.iter().enumerate().map(|(index, image)| self.image(index, image)).collect();
        let kind = self.struct_type(openmp::DEVICE_IMAGE_TYPE);
        let mut rows = Vec::new();
        for (image, bytes) in self.plan.images.iter().zip(placed) {
            let size = openmp::place_size(&image.place);
            if image.start > image.end || image.end > size {
                bail!("an image of {size} bytes does not hold {}..{}", image.start, image.end);
            }
            let [start, end] = [image.start, image.end].map(|offset| self.offset(bytes, size, offset));
            rows.push(kind.const_named_struct(&[start, end, bounds[0], bounds[1]].map(Into::into)));
        }
        let images = kind.const_array(&rows);
        let list = self.constant(openmp::IMAGES, images.get_type(), Linkage::Internal);
        list.set_initializer(&images);
        list.set_unnamed_addr(true);
        Ok(list.as_pointer_value())
    }

    fn image(&self, index: usize, image: &PlannedImage) -> PointerValue<'ctx> {
        let kind = self.byte_array(openmp::place_size(&image.place));
        let bytes = match &image.place {
            ImagePlace::External { symbol, .. } => {
                let global = self.constant(symbol, kind, Linkage::External);
                global.set_visibility(GlobalVisibility::Hidden);
                return global.as_pointer_value();
            }
            ImagePlace::Inline(bytes) => bytes,
        };
        let global = self.constant(&openmp::numbered(openmp::IMAGE, index), kind, Linkage::Internal);
        global.set_initializer(&self.context.const_string(bytes, false));
        global.set_unnamed_addr(true);
        if let Some((section, align)) = self.how.image_section {
            global.set_section(Some(if self.plan.relocatable { openmp::RELOCATABLE_SECTION } else { section }));
            global.set_alignment(align);
        }
        global.as_pointer_value()
    }

    fn descriptor(&self, images: PointerValue<'ctx>, [start, stop]: [PointerValue<'ctx>; 2]) -> PointerValue<'ctx> {
        let kind = self.struct_type(openmp::DESCRIPTOR_TYPE);
        let count = self.context.i32_type().const_int(self.plan.images.len() as u64, false);
        let value = kind.const_named_struct(&[count.into(), images.into(), start.into(), stop.into()]);
        let descriptor = self.constant(openmp::DESCRIPTOR, kind, Linkage::Internal);
        descriptor.set_initializer(&value);
        descriptor.as_pointer_value()
    }

    /// The objects that say which target id an image is for.
    fn image_infos(&self) -> Vec<PointerValue<'ctx>> {
        let with_arch = self.plan.images.iter().enumerate().filter_map(|(k, image)| Some((k, image.offload_arch.as_ref()?)));
        let info = |(ordinal, (number, arch)): (usize, (usize, &String))| {
            let kind = self.struct_type(openmp::IMAGE_INFO_TYPE);
            let text = self.context.const_string(arch.as_bytes(), true);
            let (name, section) = openmp::OFFLOAD_ARCH;
            let string = self.constant(&openmp::numbered(name, ordinal), text.get_type(), Linkage::Internal);
            string.set_initializer(&text);
            string.set_section(Some(section));
            let [version, number, count] = [openmp::IMAGE_INFO_VERSION, number as u64, self.plan.images.len() as u64]
                .map(|field| self.context.i32_type().const_int(field, false).into());
            let value = [version, number, count, string.as_pointer_value().into(), self.pointer().const_null().into()];
            let info = self.constant(&openmp::numbered(openmp::IMAGE_INFO, ordinal), kind, Linkage::Internal);
            info.set_initializer(&kind.const_named_struct(&value));
            info.set_unnamed_addr(true);
            info.as_pointer_value()
        };
        with_arch.enumerate().map(info).collect()
    }

    /// The constructor and what undoes it. Functions are declared in the order in which LLVM's own wrapper does.
    fn functions(&self, descriptor: PointerValue<'ctx>, infos: &[PointerValue<'ctx>]) -> Result<()> {
        let (register, builder) = self.function(openmp::REGISTER);
        let register_lib = self.runtime("__tgt_register_lib");
        if !infos.is_empty() {
            let register_info = self.runtime("__tgt_register_image_info");
            for info in infos {
                builder.build_call(register_info, &[(*info).into()], "")?;
            }
        }
        builder.build_call(register_lib, &[descriptor.into()], "")?;
        let at_exit = (self.how.undo == Undo::AtExit).then(|| {
            let kind = self.context.i32_type().fn_type(&[self.pointer().into()], false);
            self.module.add_function("atexit", kind, None)
        });
        let (unregister, undo) = self.function(openmp::UNREGISTER);
        if let Some(at_exit) = at_exit {
            builder.build_call(at_exit, &[unregister.as_global_value().as_pointer_value().into()], "")?;
        }
        builder.build_return(None)?;
        undo.build_call(self.runtime("__tgt_unregister_lib"), &[descriptor.into()], "")?;
        undo.build_return(None)?;

        self.structors("llvm.global_ctors", ".init_array", register);
        if self.how.undo == Undo::Destructor {
            self.structors("llvm.global_dtors", ".fini_array", unregister);
        }
        Ok(())
    }

    fn function(&self, name: &str) -> (FunctionValue<'ctx>, Builder<'ctx>) {
        let function = self.module.add_function(name, self.context.void_type().fn_type(&[], false), Some(Linkage::Internal));
        function.as_global_value().set_section(Some(openmp::FUNCTION_SECTION));
        if !self.host.features.is_empty() {
            // For who compiles the bitcode; the ABI needs them.
            let features = self.context.create_string_attribute("target-features", self.host.features);
            function.add_attribute(AttributeLoc::Function, features);
        }
        let builder = self.context.create_builder();
        builder.position_at_end(self.context.append_basic_block(function, "entry"));
        (function, builder)
    }

    fn runtime(&self, name: &str) -> FunctionValue<'ctx> {
        self.module.add_function(name, self.context.void_type().fn_type(&[self.pointer().into()], false), None)
    }

    /// Has `function` run at start or exit. LLVM's C API cannot ask for `.init_array`, and lld ignores the `.ctors` that
    /// `llvm.global_ctors` would become without it; so objects get the section by name.
    fn structors(&self, list: &str, section: &str, function: FunctionValue<'ctx>) {
        let (int, pointer) = (self.context.i32_type(), self.pointer());
        let function = function.as_global_value().as_pointer_value();
        if self.to_object && !self.host.coff {
            let entry = self.constant(section, pointer, Linkage::Private);
            entry.set_initializer(&function);
            entry.set_section(Some(&format!("{section}.{}", self.how.priority)));
            return;
        }
        let kind = self.context.struct_type(&[int.into(), pointer.into(), pointer.into()], false);
        let priority = int.const_int(u64::from(self.how.priority), false);
        let row = kind.const_named_struct(&[priority.into(), function.into(), pointer.const_null().into()]);
        self.appending(list, kind.const_array(&[row]).into());
    }

    fn appending(&self, name: &str, value: BasicValueEnum<'ctx>) -> GlobalValue<'ctx> {
        let global = self.module.add_global(value.get_type(), None, name);
        global.set_linkage(Linkage::Appending);
        global.set_initializer(&value);
        global
    }

    fn constant<T: BasicType<'ctx>>(&self, name: &str, kind: T, linkage: Linkage) -> GlobalValue<'ctx> {
        let global = self.module.add_global(kind, None, name);
        global.set_linkage(linkage);
        global.set_constant(true);
        global
    }

    fn pointer(&self) -> inkwell::types::PointerType<'ctx> {
        self.context.ptr_type(AddressSpace::default())
    }

    fn struct_type(&self, (name, fields): (&str, &[Field])) -> StructType<'ctx> {
        if let Some(kind) = self.context.get_struct_type(name) {
            return kind;
        }
        let fields: Vec<BasicTypeEnum<'ctx>> = fields
            .iter()
            .map(|field| match field {
                Field::U16 => self.context.i16_type().into(),
                Field::U32 => self.context.i32_type().into(),
                Field::U64 => self.context.i64_type().into(),
                Field::Size => self.context.ptr_sized_int_type(&self.host.data, None).into(),
                Field::Pointer => self.pointer().into(),
            })
            .collect();
        let kind = self.context.opaque_struct_type(name);
        kind.set_body(&fields, false);
        kind
    }

    /// inkwell's own has 32-bit lengths, and images may pass 4 GiB.
    fn byte_array(&self, size: u64) -> ArrayType<'ctx> {
        #[expect(unsafe_code, reason = "LLVM's C API; the type belongs to the context it is made from")]
        unsafe {
            ArrayType::new(LLVMArrayType2(self.context.i8_type().as_type_ref(), size))
        }
    }

    /// The address `offset` bytes into an image of `size` bytes.
    fn offset(&self, bytes: PointerValue<'ctx>, size: u64, offset: u64) -> PointerValue<'ctx> {
        let kind = self.byte_array(size);
        let int = |value| self.context.i64_type().const_int(value, false);
        #[expect(unsafe_code, reason = "the two indices fit the array type, and `images` has checked that the offset does")]
        unsafe {
            match (self.how.image_inbounds, offset == size) {
                (true, true) => bytes.const_in_bounds_gep(kind, &[int(1), int(0)]),
                (true, false) => bytes.const_in_bounds_gep(kind, &[int(0), int(offset)]),
                (false, _) => bytes.const_gep(kind, &[int(0), int(offset)]),
            }
        }
    }
}
