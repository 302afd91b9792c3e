//! Module for OpenMP plans: the images, the array that lists them, the descriptor, and the
//! functions that register and unregister it.

use super::emit::Emitter;
use anyhow::{Result, bail};
use inkwell::module::Linkage;
use inkwell::values::{GlobalValue, PointerValue};
use offload_formats::registration::openmp::{self, Registration, Undo};
use offload_formats::registration::{ImagePlace, PlannedImage};

/// Emits the registration of `images` according to `how`. `table`: see `Images::table`.
pub(super) fn emit(
    emitter: &Emitter<'_, '_>,
    how: &Registration,
    images: &[PlannedImage],
    table: Option<&str>,
) -> Result<()> {
    OpenMp {
        emitter,
        how,
        images,
        table,
    }
    .emit()
}

struct OpenMp<'ctx, 'e> {
    emitter: &'e Emitter<'ctx, 'e>,
    how: &'e Registration,
    images: &'e [PlannedImage],
    /// The symbol of the table, if the images are in files.
    table: Option<&'e str>,
}

impl<'ctx> OpenMp<'ctx, '_> {
    fn emit(&self) -> Result<()> {
        let bounds = self.emitter.bounds(&self.how.bounds, self.how.entry);
        if let Some(table) = self.table {
            return self.emit_with_files(table, bounds);
        }
        let images = self.images(bounds)?;
        let descriptor = self
            .descriptor(images, bounds, self.count())
            .as_pointer_value();
        let infos = if self.how.image_infos {
            self.image_infos()
        } else {
            Vec::new()
        };
        self.functions(descriptor, &infos, None)
    }

    /// Emits the registration of images in files: the program fills in the array and its length.
    fn emit_with_files(&self, table: &str, bounds: [PointerValue<'ctx>; 2]) -> Result<()> {
        let emitter = self.emitter;
        let kind = emitter.struct_type(openmp::DEVICE_IMAGE_TYPE);
        let none = emitter.pointer().const_null();
        let row = kind.const_named_struct(&[none, none, bounds[0], bounds[1]].map(Into::into));
        let rows = kind.const_array(&vec![row; self.images.len()]);
        let list = emitter.variable(openmp::IMAGES, rows.into());
        let descriptor = self.descriptor(list, bounds, 0);
        descriptor.set_constant(false);
        let descriptor = descriptor.as_pointer_value();
        self.functions(descriptor, &[], Some((table, list)))
    }

    /// Emits the images and the array that lists them.
    fn images(&self, bounds: [PointerValue<'ctx>; 2]) -> Result<PointerValue<'ctx>> {
        let placed: Vec<_> = self
            .images
            .iter()
            .enumerate()
            .map(|(index, image)| self.image(index, image))
            .collect();
        let kind = self.emitter.struct_type(openmp::DEVICE_IMAGE_TYPE);
        let mut rows = Vec::new();
        for (image, bytes) in self.images.iter().zip(placed) {
            if let ImagePlace::Between { stop, .. } = &image.place {
                let stop = self
                    .emitter
                    .elsewhere(stop, self.emitter.byte_array(0))
                    .as_pointer_value();
                rows.push(
                    kind.const_named_struct(&[bytes, stop, bounds[0], bounds[1]].map(Into::into)),
                );
            }
            for part in &image.parts {
                let size = image.place.size();
                if part.start > part.end || part.end > size {
                    bail!(
                        "an image of {size} bytes does not contain the range {}..{}",
                        part.start,
                        part.end
                    );
                }
                let [start, end] = [part.start, part.end].map(|offset| {
                    self.emitter
                        .offset(bytes, &image.place, offset, self.how.image_inbounds)
                });
                rows.push(
                    kind.const_named_struct(&[start, end, bounds[0], bounds[1]].map(Into::into)),
                );
            }
        }
        let images = kind.const_array(&rows);
        let list = self
            .emitter
            .constant(openmp::IMAGES, images.get_type(), Linkage::Internal);
        list.set_initializer(&images);
        list.set_unnamed_addr(true);
        Ok(list.as_pointer_value())
    }

    fn image(&self, index: usize, image: &PlannedImage) -> PointerValue<'ctx> {
        let global = self.emitter.image(
            &openmp::numbered(openmp::IMAGE, index),
            &image.place,
            self.how.listed_images,
        );
        if !global.is_declaration() {
            global.set_unnamed_addr(true);
        }
        global.as_pointer_value()
    }

    /// Returns the number of images that are registered.
    fn count(&self) -> usize {
        self.images
            .iter()
            .map(|image| {
                if matches!(image.place, ImagePlace::Between { .. }) {
                    1
                } else {
                    image.parts.len()
                }
            })
            .sum()
    }

    fn descriptor(
        &self,
        images: PointerValue<'ctx>,
        [start, stop]: [PointerValue<'ctx>; 2],
        count: usize,
    ) -> GlobalValue<'ctx> {
        let kind = self.emitter.struct_type(openmp::DESCRIPTOR_TYPE);
        let count = self
            .emitter
            .context
            .i32_type()
            .const_int(count as u64, false);
        let value =
            kind.const_named_struct(&[count.into(), images.into(), start.into(), stop.into()]);
        let descriptor = self
            .emitter
            .constant(openmp::DESCRIPTOR, kind, Linkage::Internal);
        descriptor.set_initializer(&value);
        descriptor
    }

    /// Emits the structures that name the target ID of each image.
    fn image_infos(&self) -> Vec<PointerValue<'ctx>> {
        let each = self
            .images
            .iter()
            .flat_map(|image| image.parts.iter().map(|_| image.offload_arch.as_ref()));
        let with_arch = each.enumerate().filter_map(|(k, arch)| Some((k, arch?)));
        let info = |(ordinal, (number, arch)): (usize, (usize, &String))| {
            let kind = self.emitter.struct_type(openmp::IMAGE_INFO_TYPE);
            let text = self.emitter.context.const_string(arch.as_bytes(), true);
            let (name, section) = openmp::OFFLOAD_ARCH;
            let string = self.emitter.constant(
                &openmp::numbered(name, ordinal),
                text.get_type(),
                Linkage::Internal,
            );
            string.set_initializer(&text);
            string.set_section(Some(section));
            let [version, number, count] = [
                openmp::IMAGE_INFO_VERSION,
                number as u64,
                self.count() as u64,
            ]
            .map(|field| {
                self.emitter
                    .context
                    .i32_type()
                    .const_int(field, false)
                    .into()
            });
            let value = [
                version,
                number,
                count,
                string.as_pointer_value().into(),
                self.emitter.pointer().const_null().into(),
            ];
            let info = self.emitter.constant(
                &openmp::numbered(openmp::IMAGE_INFO, ordinal),
                kind,
                Linkage::Internal,
            );
            info.set_initializer(&kind.const_named_struct(&value));
            info.set_unnamed_addr(true);
            info.as_pointer_value()
        };
        with_arch.enumerate().map(info).collect()
    }

    /// Emits the constructor and the destructor. Functions are declared in the same order as in
    /// LLVM's wrapper. `files`: the table of images in files, and the array for them.
    fn functions(
        &self,
        descriptor: PointerValue<'ctx>,
        infos: &[PointerValue<'ctx>],
        files: Option<(&str, PointerValue<'ctx>)>,
    ) -> Result<()> {
        let (register, builder) = self.emitter.function(openmp::REGISTER, &[]);
        if let Some((table, rows)) = files {
            let count = self.emitter.load_openmp(&builder, table, rows)?;
            let kind = self.emitter.struct_type(openmp::DESCRIPTOR_TYPE);
            let field = builder.build_struct_gep(kind, descriptor, 0, "")?;
            builder.build_store(field, count)?;
        }
        let register_lib = self.emitter.runtime(openmp::REGISTER_LIB);
        if !infos.is_empty() {
            let register_info = self.emitter.runtime("__tgt_register_image_info");
            for info in infos {
                builder.build_call(register_info, &[(*info).into()], "")?;
            }
        }
        builder.build_call(register_lib, &[descriptor.into()], "")?;
        let at_exit = (self.how.undo == Undo::AtExit).then(|| self.emitter.at_exit());
        let (unregister, undo) = self.emitter.function(openmp::UNREGISTER, &[]);
        if let Some(at_exit) = at_exit {
            self.emitter.call_at_exit(&builder, at_exit, unregister)?;
        }
        builder.build_return(None)?;
        undo.build_call(
            self.emitter.runtime("__tgt_unregister_lib"),
            &[descriptor.into()],
            "",
        )?;
        if files.is_some() {
            self.emitter.unload(&undo)?;
        }
        undo.build_return(None)?;

        self.emitter.at_start(register, self.how.priority);
        if self.how.undo == Undo::Destructor {
            self.emitter.at_end(unregister, self.how.priority);
        }
        Ok(())
    }
}
