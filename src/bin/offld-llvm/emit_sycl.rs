//! Module for SYCL plans. For LLVM 22's runtime, it contains for each image its target, its bytes
//! and its entries; the array of images, the descriptor, and the constructor and destructor that
//! register and unregister it. For later runtimes, it contains one OffloadBinary, and the functions
//! that register and unregister it by its address and size.

use super::emit::Emitter;
use anyhow::{Context as _, Result};
use inkwell::module::Linkage;
use inkwell::values::{BasicValueEnum, GlobalValue, IntValue, PointerValue, StructValue};
use offload_formats::offload_entries;
use offload_formats::registration::{ImagePlace, SyclImage, sycl};
use std::collections::HashMap;

pub(super) fn emit(emitter: &Emitter<'_, '_>, images: &[SyclImage]) -> Result<()> {
    let mut sycl = Sycl {
        emitter,
        names: HashMap::new(),
    };
    let descriptor = sycl.descriptor(images)?;
    sycl.functions(descriptor)
}

/// Emits the registration of the OffloadBinary at `place`.
pub(super) fn emit_binary(
    emitter: &Emitter<'_, '_>,
    place: &ImagePlace,
    release: sycl::Registration,
) -> Result<()> {
    let binary = emitter.image(sycl::BINARY, place, true);
    if !binary.is_declaration() {
        binary.set_unnamed_addr(true);
    }
    let size = emitter.size_type();
    let arguments = [
        binary.as_pointer_value().into(),
        size.const_int(place.size(), false).into(),
    ];
    let runtime = |name: &str| {
        let kind = emitter
            .context
            .void_type()
            .fn_type(&[emitter.pointer().into(), size.into()], false);
        emitter.module.add_function(name, kind, None)
    };
    let (register, start) = emitter.function(sycl::REGISTER, &[]);
    start.build_call(runtime(sycl::REGISTER_LIB), &arguments, "")?;
    let (unregister, end) = emitter.function(sycl::UNREGISTER, &[]);
    end.build_call(runtime(sycl::UNREGISTER_LIB), &arguments, "")?;
    end.build_return(None)?;
    if release >= sycl::Registration::Llvm24 {
        emitter.call_at_exit(&start, emitter.at_exit(), unregister)?;
        start.build_return(None)?;
        emitter.at_start(register, sycl::LATER_PRIORITY);
    } else {
        start.build_return(None)?;
        emitter.at_start(register, sycl::PRIORITY);
        emitter.at_end(unregister, sycl::PRIORITY);
    }
    Ok(())
}

struct Sycl<'ctx, 'e> {
    emitter: &'e Emitter<'ctx, 'e>,
    /// The entries that have been emitted, by kernel. Images for several targets have the same
    /// kernels.
    names: HashMap<String, StructValue<'ctx>>,
}

impl<'ctx> Sycl<'ctx, '_> {
    fn descriptor(&mut self, images: &[SyclImage]) -> Result<PointerValue<'ctx>> {
        let count =
            u16::try_from(images.len()).context("more images than a SYCL descriptor can hold")?;
        let emitter = self.emitter;
        let rows = images
            .iter()
            .enumerate()
            .map(|(index, image)| self.image(index, image))
            .collect::<Result<Vec<StructValue<'ctx>>>>()?;
        let rows = emitter
            .struct_type(sycl::DEVICE_IMAGE_TYPE)
            .const_array(&rows);
        let list = emitter.constant(sycl::IMAGES, rows.get_type(), Linkage::Internal);
        list.set_initializer(&rows);
        list.set_unnamed_addr(true);

        let null = emitter.pointer().const_null().into();
        let kind = emitter.struct_type(sycl::DESCRIPTOR_TYPE);
        let [version, count] =
            [sycl::DESCRIPTOR_VERSION, count.into()].map(|value| self.short(value).into());
        let value =
            kind.const_named_struct(&[version, count, list.as_pointer_value().into(), null, null]);
        let descriptor = emitter.constant(sycl::DESCRIPTOR, kind, Linkage::Internal);
        descriptor.set_initializer(&value);
        Ok(descriptor.as_pointer_value())
    }

    /// Emits one element of the array of images, and everything that it points to.
    fn image(&mut self, index: usize, image: &SyclImage) -> Result<StructValue<'ctx>> {
        let emitter = self.emitter;
        let named = |what: &str| format!("{}.{what}.{index}", sycl::PREFIX);
        let target = self.string(&named("target"), &image.triple);
        let compile = self.string(&named("opts.compile"), "");
        let link = self.string(&named("opts.link"), "");
        let bytes = emitter.image(
            &format!("{}.{index}.data", sycl::PREFIX),
            &image.place,
            true,
        );
        if !bytes.is_declaration() {
            bytes.set_unnamed_addr(true);
        }
        let bytes = bytes.as_pointer_value();
        let end = match &image.place {
            ImagePlace::Between { stop, .. } => emitter
                .elsewhere(stop, emitter.byte_array(0))
                .as_pointer_value(),
            place => emitter.offset(bytes, place, place.size(), false),
        };
        let [first, last] = self.entries(&image.symbols)?;

        let byte = |value: u64| emitter.context.i8_type().const_int(value, false).into();
        let null = emitter.pointer().const_null();
        let mut fields = vec![
            self.short(sycl::DEVICE_IMAGE_VERSION).into(),
            byte(sycl::KIND),
            byte(image.image_kind.raw().into()),
        ];
        let strings = [target, compile, link].map(GlobalValue::as_pointer_value);
        fields.extend(
            strings
                .into_iter()
                .chain([bytes, end, first, last, null, null])
                .map(BasicValueEnum::from),
        );
        Ok(emitter
            .struct_type(sycl::DEVICE_IMAGE_TYPE)
            .const_named_struct(&fields))
    }

    /// Emits the entries of an image. The table that all kinds share also contains them, and
    /// linkers merge it.
    fn entries(&mut self, symbols: &[String]) -> Result<[PointerValue<'ctx>; 2]> {
        let rows = symbols
            .iter()
            .map(|symbol| self.entry(symbol))
            .collect::<Result<Vec<_>>>()?;
        let kind = self
            .emitter
            .struct_type((offload_entries::ENTRY, offload_entries::WIDE_ENTRY));
        let rows = kind.const_array(&rows);
        let list = self
            .emitter
            .constant(sycl::ENTRIES, rows.get_type(), Linkage::Internal);
        list.set_initializer(&rows);
        let list = list.as_pointer_value();
        let int = |value| self.emitter.context.i64_type().const_int(value, false);
        #[expect(unsafe_code, reason = "the result is the end of the array")]
        let end = unsafe { list.const_gep(rows.get_type(), &[int(0), int(symbols.len() as u64)]) };
        Ok([list, end])
    }

    fn entry(&mut self, symbol: &str) -> Result<StructValue<'ctx>> {
        if let Some(entry) = self.names.get(symbol) {
            return Ok(*entry);
        }
        let emitter = self.emitter;
        let name = self.string(sycl::ENTRY_NAME, symbol);
        name.set_section(Some(sycl::ENTRY_NAME_SECTION));
        name.set_alignment(1);
        let name = name.as_pointer_value();
        emitter.module.add_global_metadata(
            sycl::ENTRY_NAMES,
            &emitter.context.metadata_node(&[name.into()]),
        )?;

        let null = emitter.pointer().const_null().into();
        let (word, long) = (
            emitter.context.i32_type().const_zero().into(),
            emitter.context.i64_type().const_zero().into(),
        );
        let (version, kind) = (
            self.short(sycl::ENTRY_VERSION).into(),
            self.short(sycl::KIND).into(),
        );
        let of = emitter.struct_type((offload_entries::ENTRY, offload_entries::WIDE_ENTRY));
        let value = of.const_named_struct(&[
            long,
            version,
            kind,
            word,
            null,
            name.into(),
            long,
            long,
            null,
        ]);
        let entry = emitter.constant(
            &format!("{}{symbol}", offload_entries::ENTRY_PREFIX),
            of,
            Linkage::WeakAny,
        );
        entry.set_initializer(&value);
        entry.set_section(Some(sycl::entry_section(emitter.host.coff)));
        entry.set_alignment(sycl::ENTRY_ALIGN);
        self.names.insert(symbol.to_owned(), value);
        Ok(value)
    }

    fn functions(&self, descriptor: PointerValue<'ctx>) -> Result<()> {
        let both = [
            (sycl::REGISTER, sycl::REGISTER_LIB),
            (sycl::UNREGISTER, sycl::UNREGISTER_LIB),
        ];
        let mut made = Vec::new();
        for (name, runtime) in both {
            let (function, builder) = self.emitter.function(name, &[]);
            builder.build_call(self.emitter.runtime(runtime), &[descriptor.into()], "")?;
            builder.build_return(None)?;
            made.push(function);
        }
        let [register, unregister] = made[..] else {
            return Ok(());
        };
        self.emitter.at_start(register, sycl::PRIORITY);
        self.emitter.at_end(unregister, sycl::PRIORITY);
        Ok(())
    }

    fn string(&self, name: &str, text: &str) -> GlobalValue<'ctx> {
        let text = self.emitter.context.const_string(text.as_bytes(), true);
        let string = self
            .emitter
            .constant(name, text.get_type(), Linkage::Internal);
        string.set_initializer(&text);
        string.set_unnamed_addr(true);
        string
    }

    fn short(&self, value: u64) -> IntValue<'ctx> {
        self.emitter.context.i16_type().const_int(value, false)
    }
}
