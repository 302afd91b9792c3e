//! The steps of the walk: finds out the format of bytes, and passes them to the reader of that format,
//! which enters the parts that it finds.

use anyhow::{Context, Result};
use object::FileKind;

use super::layout::Part;
use super::layout::record::Fill;
use super::report::{Entries, Image, Linker, Step};
use super::tree::NodeKind;
use super::walk::{Cursor, Walk};
use super::{archive, containers, external, image, inflate, objects, packs, registers};
use offload_formats::containers::check_nesting;
use offload_formats::elf::notes::{self, LinkedBy};
use offload_formats::magic::{ByteKind, byte_kind};
use offload_formats::model::Generation;
use offload_formats::offload_entries;
use offload_formats::registration::read::{self, Registered};

impl Walk<'_> {
    /// Inspects the bytes at `cursor`, recursively. Errors are recorded.
    pub(super) fn enter(&mut self, cursor: &Cursor) {
        if !self.may_open(cursor) {
            return;
        }
        if let Err(error) = self.inspect(cursor) {
            self.note(&error);
        }
        cursor.piece.release();
    }

    fn inspect(&mut self, cursor: &Cursor) -> Result<()> {
        self.signals.check()?;
        // If sizes are requested, most of the work follows after everything has been entered.
        if let Some(at) = cursor
            .piece
            .file_offset(0)
            .filter(|_| self.layout.is_none())
        {
            self.reached.up_to(at);
        }
        check_nesting(cursor.depth, &cursor.place)?;
        let kind = byte_kind(cursor.piece.bytes(), !cursor.inside);
        if !cursor.is_selected(kind) {
            self.leave_out(cursor, cursor.piece.size());
            return Ok(());
        }
        match kind {
            ByteKind::Container(_) => self.node(NodeKind::Row, &cursor.piece, |walk| {
                containers::sequence(walk, cursor)
            }),
            ByteKind::TextBundle(comment) => {
                self.node(NodeKind::TextBundle, &cursor.piece, |walk| {
                    containers::text_bundle(walk, cursor, comment)
                })
            }
            ByteKind::Kpack => self.node(NodeKind::Kpack, &cursor.piece, |walk| {
                packs::archive(walk, cursor)
            }),
            ByteKind::Archive => self.node(NodeKind::Archive, &cursor.piece, |walk| {
                archive::members(walk, cursor)
            }),
            ByteKind::Zip => self.node(NodeKind::Zip, &cursor.piece, |walk| {
                archive::zip_members(walk, cursor)
            }),
            ByteKind::Tar => self.node(NodeKind::Tar, &cursor.piece, |walk| {
                archive::tar_members(walk, cursor)
            }),
            ByteKind::Compressed(compression) => {
                self.node(NodeKind::Compressed, &cursor.piece, |walk| {
                    inflate::compressed_file(walk, cursor, compression)
                })
            }
            // The number of images in an archive must not depend on `headers_only`.
            ByteKind::Zstd
                if !self.options.headers_only || inflate::holds_archive(&cursor.piece) =>
            {
                self.node(NodeKind::ZstdFrame, &cursor.piece, |walk| {
                    containers::zstd_frame(walk, cursor)
                })
            }
            ByteKind::Zstd => {
                containers::unread_frame(self, cursor);
                Ok(())
            }
            ByteKind::Object(kind) if cursor.inside || is_device_object(cursor, kind) => {
                self.device_object(cursor, kind)
            }
            ByteKind::Object(kind) => self.node(NodeKind::HostFile(kind), &cursor.piece, |walk| {
                walk.host_object(cursor, kind)
            }),
            ByteKind::Bitcode if !cursor.inside => objects::host_bitcode(self, cursor),
            ByteKind::Unknown | ByteKind::Empty if !cursor.inside => {
                self.bytes(
                    cursor,
                    if cursor.depth > 0 {
                        Part::Files
                    } else {
                        Part::Other
                    },
                );
                Ok(())
            }
            _ => image::add_leaf(self, cursor),
        }
    }

    /// Inspects an object or program for the host.
    fn host_object(&mut self, cursor: &Cursor, kind: FileKind) -> Result<()> {
        let cursor = &self.object(cursor, Fill::Host);
        let before = self.images.len();
        objects::sections(self, cursor)?;
        objects::variables(self, cursor, None)?;
        if self.layout.is_some() {
            return objects::in_plain_data(self, cursor, before);
        }
        // Old wrappers put images at places that only the descriptors name.
        let is_in_container = |image: &Image| {
            image
                .path
                .iter()
                .any(|step| matches!(step, Step::Container { .. }))
        };
        let are_bare = !self
            .images
            .get(before..)
            .unwrap_or_default()
            .iter()
            .any(is_in_container);
        let registered = if self.options.registered {
            let found =
                read::read(cursor.piece.bytes()).with_context(|| cursor.place.to_string())?;
            let (members, numbers) = (cursor.place.members(), cursor.numbers.clone());
            Registered {
                members,
                numbers,
                base: cursor.piece.file_offset(0),
                ..found
            }
        } else {
            Registered::default()
        };
        if self.options.registered {
            objects::descriptor_images(self, cursor, &registered, before);
        } else if are_bare && let Ok(found) = read::read(cursor.piece.bytes()) {
            objects::descriptor_images(self, cursor, &found, before);
        }
        packs::reference(self, cursor)?;
        external::tables(self, cursor)?;
        let has_images = self.images.len() > before;
        registers::registrations(self, cursor, has_images)
            .with_context(|| cursor.place.to_string())?;
        self.entries(cursor)?;
        if !registered.is_empty() {
            self.registered.push(registered);
        }
        if is_elf(kind) {
            self.linkers(cursor)?;
            registers::modules(self, cursor)?;
        }
        objects::in_plain_data(self, cursor, before)
    }

    /// Adds the tables of entries of an object or program.
    fn entries(&mut self, cursor: &Cursor) -> Result<()> {
        let members = cursor.place.members();
        let tables = offload_entries::tables(cursor.piece.bytes());
        for table in tables.with_context(|| format!("{}: entry tables", cursor.place))? {
            let entry_size = table.entry_size();
            let count = entry_size.map(|size| table.size / size);
            let llvm = table.generation.map(|generation| match generation {
                Generation::Llvm14 | Generation::Llvm15 => "14 to 19",
                Generation::Llvm20 => "20",
                Generation::Llvm21 => "21 or later",
            });
            self.entries.push(Entries {
                members: members.clone(),
                section: table.section,
                entry_size,
                count,
                llvm,
            });
        }
        Ok(())
    }

    /// Adds the tools that linked an ELF file, from its notes.
    fn linkers(&mut self, cursor: &Cursor) -> Result<()> {
        let members = cursor.place.members();
        for by in notes::link_notes(cursor.piece.bytes())
            .with_context(|| format!("{}: notes", cursor.place))?
        {
            let LinkedBy {
                version: offld,
                device_compiler,
                ..
            } = by;
            self.linked_by.push(Linker {
                members: members.clone(),
                offld,
                device_compiler,
            });
        }
        Ok(())
    }

    /// Adds an object as an image, and inspects its sections, because it may embed other images.
    fn device_object(&mut self, cursor: &Cursor, kind: FileKind) -> Result<()> {
        self.node(NodeKind::Image, &cursor.piece, |walk| {
            let cursor = &image::add(walk, cursor)?;
            // An image in a container may be truncated or only look like ELF. That is not an error
            // here.
            if is_elf(kind) && objects::is_readable(cursor.piece.bytes()) {
                objects::sections(walk, cursor)?;
            }
            Ok(())
        })
    }
}

fn is_elf(kind: FileKind) -> bool {
    matches!(kind, FileKind::Elf32 | FileKind::Elf64)
}

/// Whether the object at `cursor`, which is not in a container, is device code itself.
fn is_device_object(cursor: &Cursor, kind: FileKind) -> bool {
    is_elf(kind) && image::is_device(cursor.piece.bytes())
}
