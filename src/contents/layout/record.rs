//! What the walk notes: which range of which bytes each thing covers.

use std::sync::Arc;

use anyhow::Result;

use super::super::report::Image;
use super::super::walk::{Cursor, Walk};
use super::sweep::Claim;
use super::{Footprint, ImageIndex, Label, Leaf, Name, Names, Part, SizedImage, Uncompressed};
use crate::io::file_slice::FileSlice;

/// The depth of claims by what a thing is in; those of sections and symbols inside of an object are
/// below.
const NESTED: u32 = 16;

/// Where a cursor is in the layout.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::contents) struct LayoutPosition {
    /// The index of the space.
    space: usize,
    /// The number of the innermost container.
    container: u64,
    /// The translation unit, where an archive tells.
    pub(in crate::contents) unit: Name,
    /// The member of a zip file or tar archive.
    pub(in crate::contents) member: Name,
}

/// How the bytes of a space are divided where the walk claims nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::contents) enum Fill {
    /// An object or program of the host.
    Host,
    /// The image of this index.
    Device(usize),
    /// Whatever was inflated: all claims are noted.
    Nothing,
}

/// Bytes with offsets of their own: a file, something inflated, an object, an image.
#[derive(Debug)]
pub(super) struct Space {
    pub(super) piece: FileSlice,
    pub(super) fill: Fill,
    pub(super) label: Label,
    pub(super) claims: Vec<Claim<To>>,
}

/// What gets claimed bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum To {
    /// Nothing that goes on.
    Label(Label),
    /// Nothing that goes on, of which there are this many bytes inflated; and where it starts, so
    /// that two of a size are two.
    Unread(Label, u64, u64),
    /// What is in this space, byte for byte.
    Space(usize),
    /// What comes out of this job, when it has been inflated.
    Job(usize),
}

/// Something that is to be inflated and gone into.
pub(super) type Job = Box<dyn FnOnce(&mut Walk<'_>) -> Result<()> + Send>;

/// What has been noted.
pub(in crate::contents) struct Layout {
    pub(super) names: Arc<Names>,
    pub(super) spaces: Vec<Space>,
    /// The spaces that are in no other: the file, and the members of thin archives.
    pub(super) roots: Vec<usize>,
    pub(super) jobs: Vec<Job>,
    pub(super) images: Vec<SizedImage>,
    pub(super) uncompressed: Vec<Uncompressed>,
    /// What was only there while it was counted.
    pub(super) counted: Vec<Footprint>,
}

impl Layout {
    /// For a walk.
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

    /// Where `piece` is in the space of `spot`, as a range; none where it is not in it (it was
    /// inflated, or is another file).
    fn range(&self, spot: LayoutPosition, piece: &FileSlice) -> Option<(u64, u64)> {
        let range = piece.range_in(&self.spaces.get(spot.space)?.piece)?;
        Some((range.start, range.end))
    }

    /// `cursor` in a new space.
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
    /// `cursor` in a space of its own that no other space holds: a file, or what a job has
    /// inflated.
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

    /// `cursor` in a space of its own within the one that it is in, whose bytes are divided as
    /// `fill` says.
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

    /// `cursor` as one for what is of the translation unit `unit`.
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

    /// `cursor` as one for what is in the member `name` of the zip file or tar archive that it is
    /// in. A member of one that is a member itself stands behind that.
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

    /// Notes that the `size` bytes from `within` at `cursor` are a container, named as in the place
    /// of what is in it. What it holds claims its bytes for itself.
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

    /// Notes that the `size` bytes from `within` at `cursor` are a container that could be
    /// compressed and is not.
    pub(in crate::contents) fn not_compressed(
        &mut self,
        cursor: &Cursor,
        within: u64,
        size: u64,
        container: &'static str,
    ) {
        /// How many bytes are kept to tell how well it could be compressed.
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

    /// Notes what bytes at `cursor` are that are not gone into.
    pub(in crate::contents) fn bytes(&mut self, cursor: &Cursor, part: Part) {
        let Some(layout) = &mut self.layout else {
            return;
        };
        let label = layout.label(cursor, part);
        layout.claim(cursor, &cursor.piece, 0, To::Label(label));
    }

    /// As [`Walk::bytes`], for what is compressed and not inflated: it would be `inflated` bytes.
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

    /// Notes `size` bytes that came out of a stream and are not kept.
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

    /// Notes `size` bytes of a stream at `cursor` that are passed over: they are not selected.
    pub(in crate::contents) fn streamed_out(&mut self, cursor: &Cursor, size: u64) {
        self.left_out = true;
        self.streamed(cursor, Part::LeftOut, "", size);
    }

    /// Goes into bytes at `cursor` that came out of a stream and are not kept: where sizes are
    /// wanted, all is found out at once.
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

    /// Notes an image; its bytes are divided afterwards. Returns the cursor for what the image
    /// itself holds.
    pub(in crate::contents) fn sized_image(&mut self, cursor: &Cursor, image: &Image) -> Cursor {
        let Some(layout) = &mut self.layout else {
            return cursor.clone();
        };
        let index = layout.images.len();
        let names = &layout.names;
        let sized = SizedImage {
            kind: names.of(image.kinds.join(",").as_bytes()),
            arch: names.of(arch(image).as_bytes()),
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

    /// Notes an image that is compressed and is not inflated.
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

    /// Goes into what `packed` inflates to: `job` inflates it and goes on. Where sizes are wanted,
    /// that is done when all else has been gone through, on all cores; the bytes of `packed` belong
    /// to what comes out.
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

/// How an image's architecture is called where sizes are compared: as the container or the image
/// calls it, and for PTX the virtual one; without one, the triple.
fn arch(image: &Image) -> String {
    if !image.is_device() {
        return "host".to_owned();
    }
    match image.target.strip_prefix("sm_") {
        Some(number) if image.format == "ptx" => format!("compute_{number}"),
        Some(number) if image.format == "lto-ir" => format!("lto_{number}"),
        _ if !image.target.is_empty() => image.target.clone(),
        _ if !image.triple.is_empty() => image.triple.clone(),
        _ => "unknown".to_owned(),
    }
}
