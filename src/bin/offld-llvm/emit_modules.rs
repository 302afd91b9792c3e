//! Code for modules that register their own kernels and variables with the image: nvcc's, which
//! give the device link a callback, and those of HIP's old driver, which share the runtime's
//! handle.
//!
//! For nvcc's modules, the code does what CUDA's `crt/link.stub` does. `nvcc -dlink` compiles that
//! file.

use super::emit_fatbin::{Fatbin, Runtime};
use anyhow::{Context as _, Result};
use inkwell::builder::Builder;
use inkwell::llvm_sys::core::LLVMAddAlias2;
use inkwell::module::Linkage;
use inkwell::types::{ArrayType, AsTypeRef};
use inkwell::values::{AsValueRef, FunctionValue, IntValue, PointerValue};
use inkwell::{GlobalVisibility, IntPredicate};
use offload_formats::nvcc;
use offload_formats::registration::fatbin::{self, ModuleCalls};
use offload_formats::registration::{FUNCTION_SECTION, ImagePlace, Modules};
use std::ffi::CString;

impl<'ctx> Fatbin<'ctx, '_> {
    /// Emits the registration of `file` for nvcc's `modules`, and the functions that the modules'
    /// constructors call.
    pub(super) fn with_callbacks(&self, file: &ImagePlace, modules: &Modules) -> Result<()> {
        let count = u32::try_from(modules.ids.len())?;
        // A null pointer ends the list of fatbinaries.
        let fatbinaries = self.list(".cuda.prelinked", count + 1);
        let wrapper = self.wrapper(file, fatbin::PRELINKED_VERSION, Some(fatbinaries.at));
        if modules.alone {
            self.after_the_last_call(modules, fatbinaries, wrapper)
        } else {
            self.before_all_calls(modules, fatbinaries, wrapper)
        }
    }

    /// Emits a list of pointers, which are null.
    fn list(&self, name: &str, length: u32) -> List<'ctx> {
        let kind = self.emitter.pointer().array_type(length);
        let list = self.emitter.module.add_global(kind, None, name);
        list.set_linkage(Linkage::Internal);
        list.set_initializer(&kind.const_zero());
        List {
            kind,
            at: list.as_pointer_value(),
        }
    }

    /// Emits a registration with an entry table. A constructor registers the image and the table.
    /// It runs before those of the modules, because constructors of C++ objects may launch kernels
    /// of the table. The constructor of each module registers the module.
    fn before_all_calls(
        &self,
        modules: &Modules,
        fatbinaries: List<'ctx>,
        wrapper: PointerValue<'ctx>,
    ) -> Result<()> {
        let emitter = self.emitter;
        let (int, pointer) = (emitter.context.i32_type(), emitter.pointer());
        let bounds = emitter.bounds(&self.how.bounds, self.how.entry);
        let (handle, runtime) = (self.handle(), self.declare_runtime());
        let unregister = self.destructor(&runtime, handle)?;
        let globals = self.globals(bounds)?;
        let (register, builder) = emitter.function(self.how.register, &[]);
        for (at, id) in (0..).zip(&modules.ids) {
            let fatbinary = self.fatbinary_of(&builder, id)?;
            let slot = fatbinaries.slot(&builder, int.const_int(at, false))?;
            builder.build_store(slot, fatbinary)?;
        }
        let value = runtime.register(&builder, wrapper)?;
        builder.build_store(handle, value)?;
        builder.build_call(globals, &[value.into()], "")?;
        if let Some(end) = runtime.end {
            builder.build_call(end, &[value.into()], "")?;
        }
        emitter.call_at_exit(&builder, runtime.at_exit, unregister)?;
        builder.build_return(None)?;
        emitter.at_start(register, fatbin::PRIORITY);
        for id in &modules.ids {
            let (builder, callback) = self.module_function(id)?;
            let value = builder.build_load(pointer, handle, "")?;
            let kind = emitter
                .context
                .void_type()
                .fn_type(&[pointer.into()], false);
            builder.build_indirect_call(kind, callback, &[value.into()], "")?;
            builder.build_return(None)?;
        }
        Ok(())
    }

    /// Emits a registration without an entry table. The call of the last module registers the
    /// image, and then each module through its callback, as CUDA's `crt/link.stub` does.
    fn after_the_last_call(
        &self,
        modules: &Modules,
        fatbinaries: List<'ctx>,
        wrapper: PointerValue<'ctx>,
    ) -> Result<()> {
        let count = u32::try_from(modules.ids.len())?;
        let lists = Lists {
            fatbinaries,
            callbacks: self.list(".cuda.callbacks", count),
            count,
        };
        let (handle, runtime) = (self.handle(), self.declare_runtime());
        let unregister = self.destructor(&runtime, handle)?;
        let complete = self.complete(&lists, &runtime, [wrapper, handle], unregister)?;
        let add = self.add(&lists, complete)?;
        for id in &modules.ids {
            let (builder, callback) = self.module_function(id)?;
            let fatbinary = self.fatbinary_of(&builder, id)?;
            builder.build_call(add, &[fatbinary.into(), callback.into()], "")?;
            builder.build_return(None)?;
        }
        Ok(())
    }

    /// Emits the function that undoes the registration.
    fn destructor(
        &self,
        runtime: &Runtime<'ctx>,
        handle: PointerValue<'ctx>,
    ) -> Result<FunctionValue<'ctx>> {
        let (unregister, undo) = self.emitter.function(self.how.unregister, &[]);
        let value = undo.build_load(self.emitter.pointer(), handle, "")?;
        undo.build_call(runtime.unregister, &[value.into()], "")?;
        undo.build_return(None)?;
        Ok(unregister)
    }

    /// Emits the function that runs after the call of the last module. `wrapper`: the structure for
    /// the runtime. `handle_variable`: the variable for the runtime's handle.
    fn complete(
        &self,
        lists: &Lists<'ctx>,
        runtime: &Runtime<'ctx>,
        [wrapper, handle_variable]: [PointerValue<'ctx>; 2],
        unregister: FunctionValue<'ctx>,
    ) -> Result<FunctionValue<'ctx>> {
        let emitter = self.emitter;
        let (int, pointer) = (emitter.context.i32_type(), emitter.pointer());
        let (function, builder) = emitter.function(self.how.register, &[]);
        let block = |name| emitter.context.append_basic_block(function, name);
        let (body, end) = (block("while.body"), block("while.end"));
        let entry = builder.get_insert_block().context("no block")?;
        let handle = runtime.register(&builder, wrapper)?;
        builder.build_store(handle_variable, handle)?;
        emitter.call_at_exit(&builder, runtime.at_exit, unregister)?;
        builder.build_unconditional_branch(body)?;

        builder.position_at_end(body);
        let index = builder.build_phi(int, "index")?;
        let current = index.as_basic_value().into_int_value();
        let slot = lists.callbacks.slot(&builder, current)?;
        let callback = builder.build_load(pointer, slot, "")?.into_pointer_value();
        let kind = emitter
            .context
            .void_type()
            .fn_type(&[pointer.into()], false);
        builder.build_indirect_call(kind, callback, &[handle.into()], "")?;
        let next = builder.build_int_add(current, int.const_int(1, false), "")?;
        index.add_incoming(&[(&int.const_zero(), entry), (&next, body)]);
        let all = int.const_int(lists.count.into(), false);
        let is_last = builder.build_int_compare(IntPredicate::EQ, next, all, "")?;
        builder.build_conditional_branch(is_last, end, body)?;

        builder.position_at_end(end);
        if let Some(end) = runtime.end {
            builder.build_call(end, &[handle.into()], "")?;
        }
        builder.build_return(None)?;
        Ok(function)
    }

    /// Emits the function that records its parameters: the fatbinary and the callback of a module.
    /// For the last module, the function also calls `complete`. Later calls have no effect.
    fn add(
        &self,
        lists: &Lists<'ctx>,
        complete: FunctionValue<'ctx>,
    ) -> Result<FunctionValue<'ctx>> {
        let emitter = self.emitter;
        let (int, pointer) = (emitter.context.i32_type(), emitter.pointer());
        let count = emitter.module.add_global(int, None, ".cuda.modules");
        count.set_linkage(Linkage::Internal);
        count.set_initializer(&int.const_zero());
        let count = count.as_pointer_value();
        let (function, builder) =
            emitter.function(".cuda.module_reg", &[pointer.into(), pointer.into()]);
        let block = |name| emitter.context.append_basic_block(function, name);
        let (free, full, end) = (block("if.free"), block("if.full"), block("if.end"));
        let all = int.const_int(lists.count.into(), false);
        let index = builder.build_load(int, count, "index")?.into_int_value();
        let is_free = builder.build_int_compare(IntPredicate::ULT, index, all, "")?;
        builder.build_conditional_branch(is_free, free, end)?;

        builder.position_at_end(free);
        for (at, list) in [(0, lists.fatbinaries), (1, lists.callbacks)] {
            let value = function.get_nth_param(at).context("no parameter")?;
            let slot = list.slot(&builder, index)?;
            builder.build_store(slot, value)?;
        }
        let next = builder.build_int_add(index, int.const_int(1, false), "")?;
        builder.build_store(count, next)?;
        let is_full = builder.build_int_compare(IntPredicate::EQ, next, all, "")?;
        builder.build_conditional_branch(is_full, full, end)?;

        builder.position_at_end(full);
        builder.build_call(complete, &[], "")?;
        builder.build_unconditional_branch(end)?;
        builder.position_at_end(end);
        builder.build_return(None)?;
        Ok(function)
    }

    /// Emits the start of the function that the constructor of the module `id` calls. Returns a
    /// builder for the rest of the function, and its first parameter, the callback. Two parameters
    /// are unused. The last is a function that gets the module's ID, so that the ID stays in the
    /// program, as with `nvcc`.
    fn module_function(&self, id: &str) -> Result<(Builder<'ctx>, PointerValue<'ctx>)> {
        let emitter = self.emitter;
        let pointer = emitter.pointer();
        let text = emitter
            .context
            .const_string(format!("def {id}").as_bytes(), true);
        let name = emitter.constant(
            &format!(".cuda.module_id{id}"),
            text.get_type(),
            Linkage::Internal,
        );
        name.set_initializer(&text);
        name.set_section(Some(fatbin::MODULE_IDS));
        name.set_alignment(1);
        let place =
            emitter
                .module
                .add_global(pointer, None, &format!(".cuda.module_id_pointer{id}"));
        place.set_linkage(Linkage::Internal);
        place.set_initializer(&name.as_pointer_value());

        let (function, builder) =
            emitter.function(&format!("{}{id}", nvcc::REGISTER), &[pointer.into(); 4]);
        function.set_linkage(Linkage::External);
        let global = function.as_global_value();
        global.set_visibility(GlobalVisibility::Hidden);
        global.set_section(Some(FUNCTION_SECTION));
        let parameter = |at| function.get_nth_param(at).context("no parameter");
        let keeps = emitter
            .context
            .void_type()
            .fn_type(&[pointer.into()], false);
        builder.build_indirect_call(
            keeps,
            parameter(3)?.into_pointer_value(),
            &[place.as_pointer_value().into()],
            "",
        )?;
        Ok((builder, parameter(0)?.into_pointer_value()))
    }

    /// Emits code that reads the address of the fatbinary of the module `id`, from the structure
    /// for it in the module's object.
    fn fatbinary_of(&self, builder: &Builder<'ctx>, id: &str) -> Result<PointerValue<'ctx>> {
        let emitter = self.emitter;
        let name = format!("{}{id}", nvcc::WRAPPER);
        let wrapper = emitter.module.get_global(&name).unwrap_or_else(|| {
            let kind = emitter.struct_type(fatbin::WRAPPER_TYPE);
            emitter.constant(&name, kind, Linkage::External)
        });
        let data = self.field(builder, wrapper.as_pointer_value(), 2)?;
        let fatbinary = builder.build_load(emitter.pointer(), data, "")?;
        Ok(fatbinary.into_pointer_value())
    }

    /// Returns the address of a field of the structure for the runtime.
    fn field(
        &self,
        builder: &Builder<'ctx>,
        wrapper: PointerValue<'ctx>,
        index: u32,
    ) -> Result<PointerValue<'ctx>> {
        let kind = self.emitter.struct_type(fatbin::WRAPPER_TYPE);
        Ok(builder.build_struct_gep(kind, wrapper, index, "")?)
    }

    /// Emits the handle that the constructors of `modules` share. Each module has its own name for
    /// it: `handle` and the module's ID. The modules register the image themselves. If there is an
    /// entry table, emits its registration of `file`.
    pub(super) fn with_shared_handle(
        &self,
        file: &ImagePlace,
        modules: &Modules,
        handle: &str,
    ) -> Result<()> {
        let emitter = self.emitter;
        let bounds = (!modules.alone).then(|| emitter.bounds(&self.how.bounds, self.how.entry));
        let shared = self.handle();
        for id in &modules.ids {
            self.alias(&ModuleCalls::symbol(handle, id), shared)?;
        }
        match bounds {
            None => Ok(()),
            Some(bounds) => {
                let wrapper = self.wrapper(file, fatbin::WRAPPER_VERSION, None);
                self.functions(wrapper, bounds, Some(shared), None)
            }
        }
    }

    /// Emits another name for the pointer variable `of`.
    fn alias(&self, name: &str, of: PointerValue<'ctx>) -> Result<()> {
        let name = CString::new(name)?;
        #[expect(
            unsafe_code,
            reason = "inkwell has no aliases; module, type and variable are alive, and LLVM copies the name"
        )]
        let alias = unsafe {
            inkwell::values::GlobalValue::new(LLVMAddAlias2(
                self.emitter.module.as_mut_ptr(),
                self.emitter.pointer().as_type_ref(),
                0,
                of.as_value_ref(),
                name.as_ptr(),
            ))
        };
        alias.set_visibility(GlobalVisibility::Hidden);
        Ok(())
    }
}

/// A variable that is a list of pointers.
#[derive(Clone, Copy)]
struct List<'ctx> {
    kind: ArrayType<'ctx>,
    at: PointerValue<'ctx>,
}

impl<'ctx> List<'ctx> {
    /// Returns the address of the pointer at `index`.
    fn slot(&self, builder: &Builder<'ctx>, index: IntValue<'ctx>) -> Result<PointerValue<'ctx>> {
        let zero = index.get_type().const_zero();
        #[expect(
            unsafe_code,
            reason = "the code compares the index with the length of the list first"
        )]
        let slot = unsafe { builder.build_in_bounds_gep(self.kind, self.at, &[zero, index], "") };
        Ok(slot?)
    }
}

/// The fatbinaries and callbacks of the modules so far, and the number of modules.
struct Lists<'ctx> {
    fatbinaries: List<'ctx>,
    callbacks: List<'ctx>,
    count: u32,
}
