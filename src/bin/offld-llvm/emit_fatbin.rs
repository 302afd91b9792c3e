//! Module for CUDA and HIP plans: the fatbinary, the structure that refers to it, the functions
//! that register it, and the loop that registers each entry of the table. Values and blocks are
//! created in the same order as in LLVM's wrapper. `emit_modules` has the code for modules that
//! register their own kernels.

use super::emit::Emitter;
use anyhow::{Context as _, Result, bail};
use inkwell::IntPredicate;
use inkwell::basic_block::BasicBlock;
use inkwell::builder::Builder;
use inkwell::module::Linkage;
use inkwell::types::{BasicMetadataTypeEnum, BasicTypeEnum, IntType};
use inkwell::values::{
    BasicMetadataValueEnum, BasicValueEnum, FunctionValue, IntValue, PointerValue,
};
use offload_formats::registration::fatbin::{
    self, Argument, Call, Contract, EntryField, ModuleCalls,
};
use offload_formats::registration::{ImagePlace, Modules};

/// Emits the registration of `file` according to the contract `how`, for an entry table and for
/// `modules`.
pub(super) fn emit(
    emitter: &Emitter<'_, '_>,
    how: &Contract,
    file: &ImagePlace,
    modules: &Modules,
) -> Result<()> {
    let fatbin = Fatbin { emitter, how };
    if modules.is_empty() {
        let bounds = emitter.bounds(&how.bounds, how.entry);
        let wrapper = fatbin.wrapper(file, fatbin::WRAPPER_VERSION, None);
        return fatbin.functions(wrapper, bounds, None, file.table());
    }
    if file.table().is_some() {
        bail!("modules that register their own kernels cannot load images from files");
    }
    match how.modules {
        ModuleCalls::Callbacks => fatbin.with_callbacks(file, modules),
        ModuleCalls::SharedHandle { handle, .. } => {
            fatbin.with_shared_handle(file, modules, handle)
        }
    }
}

pub(super) struct Fatbin<'ctx, 'e> {
    pub(super) emitter: &'e Emitter<'ctx, 'e>,
    pub(super) how: &'e Contract,
}

impl<'ctx> Fatbin<'ctx, '_> {
    /// Emits the structure that the runtime gets. `list`: the last pointer in it.
    pub(super) fn wrapper(
        &self,
        file: &ImagePlace,
        version: u64,
        list: Option<PointerValue<'ctx>>,
    ) -> PointerValue<'ctx> {
        let in_files = file.table().is_some();
        let image = if in_files {
            self.emitter.pointer().const_null()
        } else {
            let image = self.emitter.image(fatbin::IMAGE, file, true);
            image.as_pointer_value()
        };
        let kind = self.emitter.struct_type(fatbin::WRAPPER_TYPE);
        let [magic, version] = [u64::from(self.how.magic), version].map(|word| {
            self.emitter
                .context
                .i32_type()
                .const_int(word, false)
                .into()
        });
        let value = kind.const_named_struct(&[
            magic,
            version,
            image.into(),
            list.unwrap_or_else(|| self.emitter.pointer().const_null())
                .into(),
        ]);
        let wrapper = self
            .emitter
            .constant(fatbin::WRAPPER, kind, Linkage::Internal);
        wrapper.set_initializer(&value);
        wrapper.set_constant(!in_files);
        wrapper.set_section(Some(self.how.wrapper_section));
        wrapper.set_alignment(fatbin::WRAPPER_ALIGN);
        wrapper.as_pointer_value()
    }

    /// Emits the constructor, the destructor, and the function that registers the entries. With
    /// `shared_handle`, other code may have registered or unregistered the image. `files`: the table
    /// of images in files.
    pub(super) fn functions(
        &self,
        wrapper: PointerValue<'ctx>,
        bounds: [PointerValue<'ctx>; 2],
        shared_handle: Option<PointerValue<'ctx>>,
        files: Option<&str>,
    ) -> Result<()> {
        let (emitter, how) = (self.emitter, self.how);
        let pointer = emitter.pointer();
        let handle_variable = shared_handle.unwrap_or_else(|| self.handle());
        let (register, builder) = emitter.function(how.register, &[]);
        let (unregister, undo) = emitter.function(how.unregister, &[]);
        let runtime = self.declare_runtime();
        let globals = self.globals(bounds)?;

        if let Some(table) = files {
            let container = emitter.load(&builder, how.load_files, table)?;
            let kind = emitter.struct_type(fatbin::WRAPPER_TYPE);
            let field = builder.build_struct_gep(kind, wrapper, fatbin::WRAPPER_FILE, "")?;
            builder.build_store(field, container)?;
        }
        let handle = match shared_handle {
            None => {
                let handle = runtime.register(&builder, wrapper)?;
                builder.build_store(handle_variable, handle)?;
                handle
            }
            Some(_) => {
                let block = |name| emitter.context.append_basic_block(register, name);
                let (first, next) = (block("if.first"), block("if.end"));
                let handle = builder.build_load(pointer, handle_variable, "")?;
                let is_first = builder.build_is_null(handle.into_pointer_value(), "")?;
                builder.build_conditional_branch(is_first, first, next)?;
                builder.position_at_end(first);
                let handle = runtime.register(&builder, wrapper)?;
                builder.build_store(handle_variable, handle)?;
                builder.build_unconditional_branch(next)?;
                builder.position_at_end(next);
                builder.build_load(pointer, handle_variable, "")?
            }
        };
        builder.build_call(globals, &[handle.into()], "")?;
        if let Some(end) = runtime.end {
            builder.build_call(end, &[handle.into()], "")?;
        }
        emitter.call_at_exit(&builder, runtime.at_exit, unregister)?;
        builder.build_return(None)?;
        let handle = undo.build_load(pointer, handle_variable, "")?;
        if shared_handle.is_some() {
            let block = |name| emitter.context.append_basic_block(unregister, name);
            let (last, end) = (block("if.last"), block("if.end"));
            let is_last = undo.build_is_not_null(handle.into_pointer_value(), "")?;
            undo.build_conditional_branch(is_last, last, end)?;
            undo.position_at_end(last);
            undo.build_call(runtime.unregister, &[handle.into()], "")?;
            undo.build_store(handle_variable, pointer.const_null())?;
            undo.build_unconditional_branch(end)?;
            undo.position_at_end(end);
        } else {
            undo.build_call(runtime.unregister, &[handle.into()], "")?;
        }
        if files.is_some() {
            emitter.unload(&undo)?;
        }
        undo.build_return(None)?;
        emitter.at_start(register, fatbin::PRIORITY);
        Ok(())
    }

    /// Emits the variable for the runtime's handle.
    pub(super) fn handle(&self) -> PointerValue<'ctx> {
        let pointer = self.emitter.pointer();
        let handle = self
            .emitter
            .module
            .add_global(pointer, None, self.how.handle);
        handle.set_linkage(Linkage::Internal);
        handle.set_initializer(&pointer.const_null());
        self.emitter.keep_apart(handle);
        handle.as_pointer_value()
    }

    /// Declares the functions of the runtime for the image as a whole.
    pub(super) fn declare_runtime(&self) -> Runtime<'ctx> {
        let (emitter, how) = (self.emitter, self.how);
        let pointer = emitter.pointer();
        Runtime {
            register: emitter.module.add_function(
                how.register_binary,
                pointer.fn_type(&[pointer.into()], false),
                None,
            ),
            end: how.register_end.map(|name| emitter.runtime(name)),
            unregister: emitter.runtime(how.unregister_binary),
            at_exit: emitter.at_exit(),
        }
    }

    /// Emits the function that registers each entry with the handle in its parameter.
    pub(super) fn globals(
        &self,
        [start, stop]: [PointerValue<'ctx>; 2],
    ) -> Result<FunctionValue<'ctx>> {
        let (context, pointer) = (self.emitter.context, self.emitter.pointer());
        let declared = Declared {
            function: self.declare(&self.how.becomes.function),
            variables: self
                .how
                .becomes
                .variables()
                .map(|(_, call)| call.map(|call| self.declare(&call))),
        };
        let (function, builder) = self.emitter.function(self.how.globals, &[pointer.into()]);
        let entry = builder.get_insert_block().context("no block")?;
        let block = |name: &str| context.append_basic_block(function, name);
        let body = block("while.entry");
        let own_kind = self.how.kind.map(|kind| (kind, block("if.kind")));
        let (kernel, variable) = (block("if.then"), block("if.else"));
        let cases = self
            .how
            .becomes
            .variables()
            .map(|(name, _)| block(&format!("sw.{name}")));
        let (next, end) = (block("if.end"), block("while.end"));

        let some = builder.build_int_compare(IntPredicate::NE, start, stop, "")?;
        builder.build_conditional_branch(some, body, end)?;
        builder.position_at_end(body);
        let at = builder.build_phi(pointer, "entry")?;
        let current = at.as_basic_value().into_pointer_value();
        let handle = function
            .get_first_param()
            .context("no handle")?
            .into_pointer_value();
        let values = self.read(&builder, handle, current)?;
        if let Some((kind, block)) = own_kind {
            let own = context.i16_type().const_int(kind.into(), false);
            let is_own = builder.build_int_compare(
                IntPredicate::EQ,
                values.int(EntryField::Kind)?,
                own,
                "",
            )?;
            builder.build_conditional_branch(is_own, block, next)?;
            builder.position_at_end(block);
        }
        let size = values.int(EntryField::Size)?;
        let is_kernel =
            builder.build_int_compare(IntPredicate::EQ, size, size.get_type().const_zero(), "")?;
        builder.build_conditional_branch(is_kernel, kernel, variable)?;

        builder.position_at_end(kernel);
        self.call(
            &builder,
            declared.function,
            &self.how.becomes.function,
            &values,
        )?;
        builder.build_unconditional_branch(next)?;
        self.variables(&builder, (variable, cases, next), &declared, &values)?;

        builder.position_at_end(next);
        let kind = self.emitter.struct_type(self.how.entry);
        let one = self.emitter.size_type().const_int(1, false);
        #[expect(
            unsafe_code,
            reason = "the table ends with an entry, so the result is the next entry or the end"
        )]
        let following = unsafe { builder.build_in_bounds_gep(kind, current, &[one], "") }?;
        let last = builder.build_int_compare(IntPredicate::EQ, following, stop, "")?;
        at.add_incoming(&[(&start, entry), (&following, next)]);
        builder.build_conditional_branch(last, end, body)?;
        builder.position_at_end(end);
        builder.build_return(None)?;
        Ok(function)
    }

    /// Emits the part of the loop that distinguishes kinds of variables.
    fn variables(
        &self,
        builder: &Builder<'ctx>,
        blocks: Blocks<'ctx>,
        declared: &Declared<'ctx>,
        values: &Values<'ctx>,
    ) -> Result<()> {
        let (start, cases, next) = blocks;
        let int = self.emitter.context.i32_type();
        let targets: Vec<_> = cases
            .iter()
            .zip(0..)
            .map(|(block, kind)| (int.const_int(kind, false), *block))
            .collect();
        builder.position_at_end(start);
        builder.build_switch(values.kind, next, &targets)?;
        for ((block, function), (_, call)) in cases
            .iter()
            .zip(declared.variables)
            .zip(self.how.becomes.variables())
        {
            builder.position_at_end(*block);
            if let (Some(function), Some(call)) = (function, call) {
                self.call(builder, function, &call, values)?;
            }
            builder.build_unconditional_branch(next)?;
        }
        Ok(())
    }

    /// Reads the entry at `current`.
    fn read(
        &self,
        builder: &Builder<'ctx>,
        handle: PointerValue<'ctx>,
        current: PointerValue<'ctx>,
    ) -> Result<Values<'ctx>> {
        let kind = self.emitter.struct_type(self.how.entry);
        let int = self.emitter.context.i32_type();
        let word = |value| int.const_int(value, false);
        let mut parts = Vec::new();
        for read in self.how.reads {
            let indices = [word(0), word(read.index.into())];
            #[expect(
                unsafe_code,
                reason = "the indices come from the description of the entry's type"
            )]
            let field = unsafe { builder.build_in_bounds_gep(kind, current, &indices, "") }?;
            let of = kind
                .get_field_type_at_index(read.index)
                .context("no such field")?;
            parts.push((
                read.field,
                builder.build_load::<BasicTypeEnum<'ctx>>(of, field, read.name)?,
            ));
        }
        let mut values = Values {
            handle,
            parts,
            kind: word(0),
            flags: [word(0); 3],
        };
        values.narrow(builder, EntryField::Data, int, "")?;
        let flags = values.int(EntryField::Flags)?;
        values.kind = builder.build_and(flags, word(fatbin::TYPE_MASK), "type")?;
        for ((name, shift), flag) in fatbin::FLAGS.iter().zip(&mut values.flags) {
            let bit = builder.build_and(flags, word(1 << shift), "")?;
            *flag = builder.build_right_shift(bit, word(*shift), false, name)?;
        }
        values.narrow(
            builder,
            EntryField::Size,
            self.emitter.size_type(),
            "size.host",
        )?;
        Ok(values)
    }

    fn declare(&self, call: &Call) -> FunctionValue<'ctx> {
        let (context, pointer) = (self.emitter.context, self.emitter.pointer());
        let kinds: Vec<BasicMetadataTypeEnum<'ctx>> = call
            .arguments
            .iter()
            .map(|argument| match argument {
                Argument::Handle
                | Argument::Address
                | Argument::AuxAddress
                | Argument::Name
                | Argument::Null => pointer.into(),
                Argument::Size => self.emitter.size_type().into(),
                Argument::Data | Argument::Flag(_) | Argument::Int(_) => context.i32_type().into(),
            })
            .collect();
        let kind = if call.returns {
            context.i32_type().fn_type(&kinds, false)
        } else {
            context.void_type().fn_type(&kinds, false)
        };
        self.emitter.module.add_function(call.name, kind, None)
    }

    fn call(
        &self,
        builder: &Builder<'ctx>,
        function: FunctionValue<'ctx>,
        call: &Call,
        values: &Values<'ctx>,
    ) -> Result<()> {
        let argument = |argument: &Argument| -> Result<BasicMetadataValueEnum<'ctx>> {
            Ok(match argument {
                Argument::Handle => values.handle.into(),
                Argument::Address => values.part(EntryField::Address)?.into(),
                Argument::AuxAddress => values.part(EntryField::AuxAddress)?.into(),
                Argument::Name => values.part(EntryField::Name)?.into(),
                Argument::Size => values.part(EntryField::Size)?.into(),
                Argument::Data => values.part(EntryField::Data)?.into(),
                Argument::Flag(index) => {
                    (*values.flags.get(*index).context("no such flag")?).into()
                }
                Argument::Int(value) => self
                    .emitter
                    .context
                    .i32_type()
                    .const_int(i64::from(*value).cast_unsigned(), true)
                    .into(),
                Argument::Null => self.emitter.pointer().const_null().into(),
            })
        };
        let arguments = call
            .arguments
            .iter()
            .map(argument)
            .collect::<Result<Vec<_>>>()?;
        builder.build_call(function, &arguments, "")?;
        Ok(())
    }
}

/// The block that distinguishes kinds of variables, the four blocks that it branches to, and the
/// block after those.
type Blocks<'ctx> = (BasicBlock<'ctx>, [BasicBlock<'ctx>; 4], BasicBlock<'ctx>);

/// The declared functions of the runtime for the image as a whole.
pub(super) struct Runtime<'ctx> {
    register: FunctionValue<'ctx>,
    pub(super) end: Option<FunctionValue<'ctx>>,
    pub(super) unregister: FunctionValue<'ctx>,
    pub(super) at_exit: FunctionValue<'ctx>,
}

impl<'ctx> Runtime<'ctx> {
    /// Emits the call that registers the image. Returns the handle.
    pub(super) fn register(
        &self,
        builder: &Builder<'ctx>,
        wrapper: PointerValue<'ctx>,
    ) -> Result<BasicValueEnum<'ctx>> {
        let handle = builder.build_call(self.register, &[wrapper.into()], "")?;
        handle.try_as_basic_value().basic().context("no handle")
    }
}

/// The declared functions of the runtime that register entries.
struct Declared<'ctx> {
    function: FunctionValue<'ctx>,
    variables: [Option<FunctionValue<'ctx>>; 4],
}

/// The values of an entry's fields.
struct Values<'ctx> {
    handle: PointerValue<'ctx>,
    parts: Vec<(EntryField, BasicValueEnum<'ctx>)>,
    kind: IntValue<'ctx>,
    flags: [IntValue<'ctx>; 3],
}

impl<'ctx> Values<'ctx> {
    fn part(&self, part: EntryField) -> Result<BasicValueEnum<'ctx>> {
        let found = self.parts.iter().find(|(each, _)| *each == part);
        found
            .map(|(_, value)| *value)
            .with_context(|| format!("entries of this generation have no {part:?}"))
    }

    fn int(&self, part: EntryField) -> Result<IntValue<'ctx>> {
        Ok(self.part(part)?.into_int_value())
    }

    /// Truncates `part` to the type `to`, if it is wider.
    fn narrow(
        &mut self,
        builder: &Builder<'ctx>,
        part: EntryField,
        to: IntType<'ctx>,
        name: &str,
    ) -> Result<()> {
        for (_, value) in self.parts.iter_mut().filter(|(each, _)| *each == part) {
            let wide = value.into_int_value();
            if wide.get_type().get_bit_width() > to.get_bit_width() {
                *value = builder.build_int_truncate(wide, to, name)?.into();
            }
        }
        Ok(())
    }
}
