//! Records of the walk for the attribution of bytes: the range of each item in the bytes around it.

use std::sync::Arc;

use anyhow::Result;

use super::super::report::Image;
use super::super::walk::{Cursor, Walk};
use super::{
    Claim, Footprint, ImageIndex, Label, Leaf, Name, Names, Part, SizedImage, Uncompressed,
};
use offld_system::io::file_slice::FileSlice;

/// The depth of claims on the outermost level; claims on nested levels are deeper. The depths of
/// sections and symbols inside of an object are smaller.
const NESTED: u32 = 16;

/// The position of a cursor in the layout.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::contents) struct LayoutPosition {
    /// The index of the space.
    space: usize,
    /// The number of the innermost container.
    container: u64,
    /// The translation unit, if an archive names it.
    pub(in crate::contents) unit: Name,
    /// The member of a zip file or tar archive.
    pub(in crate::contents) member: Name,
}

/// The division of the bytes of a space that the walk does not claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::contents) enum Fill {
    /// An object or program of the host.
    Host,
    /// The image of this index.
    Device(usize),
    /// Decompressed data: all its claims are recorded.
    Nothing,
}

/// Bytes with offsets of their own: a file, decompressed data, an object, an image.
#[derive(Debug)]
pub(super) struct Space {
    pub(super) piece: FileSlice,
    pub(super) fill: Fill,
    pub(super) label: Label,
    pub(super) claims: Vec<Claim<To>>,
}

/// The receiver of claimed bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum To {
    /// Bytes that are not divided further.
    Label(Label),
    /// Compressed bytes that are not divided further, their uncompressed size, and their start. The
    /// start keeps two items of the same size apart.
    Unread(Label, u64, u64),
    /// The contents of this space, byte for byte.
    Space(usize),
    /// The results of this job, which decompresses the bytes.
    Job(usize),
}

/// A step that decompresses data and inspects the result.
pub(super) type Job = Box<dyn FnOnce(&mut Walk<'_>) -> Result<()> + Send>;

/// The records of a walk.
pub(in crate::contents) struct Layout {
    pub(super) names: Arc<Names>,
    pub(super) spaces: Vec<Space>,
    /// The spaces that no other space contains: the file, and the members of thin archives.
    pub(super) roots: Vec<usize>,
    pub(super) jobs: Vec<Job>,
    pub(super) images: Vec<SizedImage>,
    pub(super) uncompressed: Vec<Uncompressed>,
    /// Results for data that was dropped after counting.
    pub(super) counted: Vec<Footprint>,
}

impl Layout {
    /// Creates the records of a walk.
    pub(in crate::contents) fn new(names: &Arc<Names>) -> Layout {
        let (spaces, roots, jobs) = (Vec::new(), Vec::new(), Vec::new());
        Layout {
            names: Arc::clone(names),
            spaces,
            roots,
            jobs,
            images: Vec::new(),
            uncompressed: Vec::new(),
            counted: Vec::new(),
        }
    }

    fn label(&self, cursor: &Cursor, part: Part) -> Label {
        Label {
            part,
            kind: self.names.of(cursor.facts.kinds.join(",").as_bytes()),
            section: self
                .names
                .of(cursor.place.section().unwrap_or_default().as_bytes()),
            kernel: Name::NONE,
            unit: cursor.spot.unit,
            member: cursor.spot.member,
            container: self
                .names
                .of(cursor.place.container().unwrap_or_default().as_bytes()),
            image: ImageIndex::NONE,
        }
    }

    /// The range of `piece` in the space of `spot`; none if the space does not contain it, because
    /// it was decompressed or is another file.
    fn range(&self, spot: LayoutPosition, piece: &FileSlice) -> Option<(u64, u64)> {
        let range = piece.range_in(&self.spaces.get(spot.space)?.piece)?;
        Some((range.start, range.end))
    }

    /// Returns `cursor` in a new space.
    fn add_space(&mut self, cursor: &Cursor, fill: Fill, label: Label) -> Cursor {
        let space = self.spaces.len();
        self.spaces.push(Space {
            piece: cursor.piece.clone(),
            fill,
            label,
            claims: Vec::new(),
        });
        Cursor {
            spot: LayoutPosition {
                space,
                ..cursor.spot
            },
            ..cursor.clone()
        }
    }

    fn claim(&mut self, cursor: &Cursor, piece: &FileSlice, more: u32, to: To) {
        let Some((start, end)) = self.range(cursor.spot, piece) else {
            return;
        };
        let depth = NESTED + 2 * u32::try_from(cursor.depth).unwrap_or(u32::MAX / 4) + more;
        if let Some(space) = self.spaces.get_mut(cursor.spot.space) {
            space.claims.push(Claim {
                start,
                end,
                depth,
                to,
            });
        }
    }
}

impl Walk<'_> {
    /// Returns `cursor` in a space that no other space contains: a file, or data that a job has
    /// decompressed.
    pub(in crate::contents) fn root(&mut self, cursor: &Cursor) -> Cursor {
        let Some(layout) = &mut self.layout else {
            return cursor.clone();
        };
        let label = layout.label(
            cursor,
            if cursor.place.container().is_some() {
                Part::Container
            } else {
                Part::Other
            },
        );
        layout.roots.push(layout.spaces.len());
        layout.add_space(cursor, Fill::Nothing, label)
    }

    /// Returns `cursor` in a space within its present one. `fill` determines how the bytes of the
    /// new space are divided.
    pub(in crate::contents) fn object(&mut self, cursor: &Cursor, fill: Fill) -> Cursor {
        let Some(layout) = &mut self.layout else {
            return cursor.clone();
        };
        let mut label = layout.label(cursor, Part::Other);
        if let Fill::Device(image) = fill {
            label.image = ImageIndex::of(image);
        }
        layout.claim(cursor, &cursor.piece, 1, To::Space(layout.spaces.len()));
        layout.add_space(cursor, fill, label)
    }

    /// Returns `cursor` with the translation unit `unit`.
    pub(in crate::contents) fn unit(&self, cursor: Cursor, unit: &str) -> Cursor {
        let unit = self
            .layout
            .as_ref()
            .map_or(Name::NONE, |layout| layout.names.of(unit.as_bytes()));
        Cursor {
            spot: LayoutPosition {
                unit,
                ..cursor.spot
            },
            ..cursor
        }
    }

    /// Returns `cursor` with the member `name` of a zip or tar archive. The name of a nested member
    /// includes that of the outer one.
    pub(in crate::contents) fn member(&self, cursor: Cursor, name: &str) -> Cursor {
        let Some(layout) = &self.layout else {
            return cursor;
        };
        let member = match layout.names.text(cursor.spot.member) {
            outer if outer.is_empty() => layout.names.of(name.as_bytes()),
            outer => layout.names.of(format!("{outer}({name})").as_bytes()),
        };
        Cursor {
            spot: LayoutPosition {
                member,
                ..cursor.spot
            },
            ..cursor
        }
    }

    /// Records a container: the `size` bytes from `within` at `cursor`. `container` is its name as
    /// in locations. The items in it claim their own bytes.
    pub(in crate::contents) fn container(
        &mut self,
        cursor: &Cursor,
        within: u64,
        size: u64,
        container: &'static str,
    ) -> LayoutPosition {
        let Some(layout) = &mut self.layout else {
            return cursor.spot;
        };
        let label = Label {
            container: layout.names.of(container.as_bytes()),
            ..layout.label(cursor, Part::Container)
        };
        if let Some(piece) = cursor.piece.slice(within, size) {
            layout.claim(cursor, &piece, 0, To::Label(label));
        }
        LayoutPosition {
            container: layout.names.container(),
            ..cursor.spot
        }
    }

    /// Records a container that could be compressed: the `size` bytes from `within` at `cursor`.
    pub(in crate::contents) fn not_compressed(
        &mut self,
        cursor: &Cursor,
        within: u64,
        size: u64,
        container: &'static str,
    ) {
        /// The size of the sample for an estimate of the compression ratio.
        const SAMPLE: u64 = 64 << 10;
        let Some(layout) = &mut self.layout else {
            return;
        };
        if cursor.place.is_compressed() || size < SAMPLE {
            return;
        }
        if let Some(mut sample) = cursor.piece.slice(within + (size - SAMPLE) / 2, SAMPLE) {
            if sample.is_made() {
                sample = FileSlice::owned(sample.bytes().to_vec());
            }
            layout.uncompressed.push(Uncompressed {
                container,
                size,
                sample,
            });
        }
    }

    /// Records the purpose of bytes at `cursor` that are not inspected.
    pub(in crate::contents) fn bytes(&mut self, cursor: &Cursor, part: Part) {
        let Some(layout) = &mut self.layout else {
            return;
        };
        let label = layout.label(cursor, part);
        layout.claim(cursor, &cursor.piece, 0, To::Label(label));
    }

    /// The same as [`Walk::bytes`] for compressed data that is not decompressed. `inflated` is its
    /// uncompressed size.
    pub(in crate::contents) fn unread(&mut self, cursor: &Cursor, part: Part, inflated: u64) {
        let Some(layout) = &mut self.layout else {
            return;
        };
        let label = layout.label(cursor, part);
        let start = layout
            .range(cursor.spot, &cursor.piece)
            .map_or(0, |(start, _)| start);
        layout.claim(cursor, &cursor.piece, 0, To::Unread(label, inflated, start));
    }

    /// Records `size` bytes of a stream that are not stored.
    pub(in crate::contents) fn streamed(
        &mut self,
        cursor: &Cursor,
        part: Part,
        container: &'static str,
        size: u64,
    ) {
        let Some(layout) = self.layout.as_mut().filter(|_| size > 0) else {
            return;
        };
        let label = Label {
            container: layout.names.of(container.as_bytes()),
            ..layout.label(cursor, part)
        };
        let leaves = vec![Leaf {
            label,
            file: size,
            inflated: size,
        }];
        layout.counted.push(Footprint {
            size,
            leaves,
            ..Footprint::default()
        });
    }

    /// Records `size` bytes of a stream at `cursor` that are skipped because they are not selected.
    pub(in crate::contents) fn streamed_out(&mut self, cursor: &Cursor, size: u64) {
        self.left_out = true;
        self.streamed(cursor, Part::LeftOut, "", size);
    }

    /// Inspects bytes at `cursor` that come from a stream and are not stored. If sizes are
    /// requested, the bytes are attributed at once.
    pub(in crate::contents) fn enter_streamed(&mut self, cursor: &Cursor) {
        if self.layout.is_none() {
            return self.enter(cursor);
        }
        let mut walk = Walk::within(&self.limits());
        let root = walk.root(cursor);
        walk.enter(&root);
        let (footprint, errors) = walk.footprint();
        self.errors.extend(errors);
        if let Some(layout) = &mut self.layout {
            layout.counted.push(footprint);
        }
    }

    /// Records an image, whose bytes are divided later. Returns the cursor for the contents of the
    /// image.
    pub(in crate::contents) fn sized_image(&mut self, cursor: &Cursor, image: &Image) -> Cursor {
        let Some(layout) = &mut self.layout else {
            return cursor.clone();
        };
        let index = layout.images.len();
        let names = &layout.names;
        let sized = SizedImage {
            kind: names.of(image.kinds.join(",").as_bytes()),
            arch: names.of(image.arch().as_bytes()),
            triple: names.of(image.triple.as_bytes()),
            target: names.of(image.target.as_bytes()),
            format: image.format,
            place: cursor.place.within(),
            size: image.size,
            container: cursor.spot.container,
            functions: Vec::new(),
            digest: None,
            piece: (!cursor.piece.is_made()).then(|| cursor.piece.clone()),
            units: Vec::new(),
        };
        layout.images.push(sized);
        self.object(cursor, Fill::Device(index))
    }

    /// Records an image that is compressed and not decompressed.
    pub(in crate::contents) fn unread_image(&mut self, cursor: &Cursor, image: &Image) {
        let inner = self.sized_image(cursor, image);
        let Some(layout) = &mut self.layout else {
            return;
        };
        let Some(label) = layout.spaces.get(inner.spot.space).map(|space| Label {
            part: Part::Image,
            ..space.label
        }) else {
            return;
        };
        layout.claim(&inner, &inner.piece, 0, To::Unread(label, image.size, 0));
    }

    /// Decompresses `packed` and inspects the result: `job` does both. If sizes are requested, jobs
    /// run after the walk, on all cores, and the bytes of `packed` belong to the results.
    pub(in crate::contents) fn inflated(
        &mut self,
        packed: &Cursor,
        job: impl FnOnce(&mut Walk<'_>) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        let Some(layout) = &mut self.layout else {
            return job(self);
        };
        let index = layout.jobs.len();
        layout.claim(packed, &packed.piece, 1, To::Job(index));
        layout.jobs.push(Box::new(job));
        Ok(())
    }
}
