//! The tree of a file: the parts of it that hold device code, down to the images. The report of a
//! file records its tree. [`crate::edit`] rebuilds the file from the tree, bottom up.
//!
//! A node has no bytes, only a range in the bytes of the node around it, so a tree takes little
//! memory. The bytes of compressed parts are inflated again when they are needed.

use std::collections::BTreeMap;
use std::ops::Range;

use object::FileKind;

use offld_system::io::file_slice::FileSlice;
use offload_formats::containers::Kind;
use offload_formats::model::ImageKind;

/// A part of a file that holds device code.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) kind: NodeKind,
    /// Its bytes, within those of the node around it. If that node is compressed, the range is in
    /// the inflated bytes. The range of a separate file, such as a member of a thin archive, starts
    /// at 0.
    pub(crate) range: Range<u64>,
    /// The numbers of the images in it, as the report has them.
    pub(crate) images: Range<usize>,
    /// The parts in it, in the order of the report: all device-code sections, all containers and all
    /// container entries. Other parts are included only if they have children or images.
    pub(crate) children: Vec<Node>,
}

impl Node {
    /// The number of the image, if this whole part is an image. That image may embed others.
    pub(crate) fn image(&self) -> Option<usize> {
        match (&self.kind, self.children.as_slice()) {
            (NodeKind::Image, _) => Some(self.images.start),
            (NodeKind::FatbinaryEntry | NodeKind::ZstdFrame, [inner]) => inner.image(),
            _ => None,
        }
    }
}

/// The kind of a part of a file.
#[derive(Debug)]
pub(crate) enum NodeKind {
    /// An image, the first of [`Node::images`]. It embeds the others.
    Image,
    /// An archive. In a container or section, it is an archive of Intel's ocloc: an image for
    /// several devices.
    Archive,
    /// A member of an archive, with its name as messages show it.
    Member(String),
    Zip,
    Tar,
    /// A file that is compressed as a whole.
    Compressed,
    /// A zstd frame that is an image by itself.
    ZstdFrame,
    /// An object, program or library for the host.
    HostFile(FileKind),
    /// Bitcode for the host that embeds images.
    HostBitcode,
    /// A section of device code of a host file. Its children are the containers or images in it.
    Section(Box<DeviceSection>),
    /// A section of plain data that contains device code without a registration.
    Data,
    /// Containers that follow each other.
    Row,
    /// A container in a [`NodeKind::Row`]. Its children are its entries, in order.
    Container(Kind),
    /// An entry of a fatbinary, as it is stored. Its child is the image.
    FatbinaryEntry,
    /// A kpack archive. Its children are its entries, in order.
    Kpack,
    /// A text bundle. Its children are its code objects.
    TextBundle,
}

impl NodeKind {
    /// Whether nodes of this kind keep children without images: their order or number matters.
    fn keeps_all(&self) -> bool {
        matches!(
            self,
            NodeKind::HostFile(_)
                | NodeKind::Section(_)
                | NodeKind::Row
                | NodeKind::Container(_)
                | NodeKind::TextBundle
                | NodeKind::Kpack
        )
    }
}

/// The contents of a section of device code.
#[derive(Debug, Clone)]
pub(crate) enum Holds {
    /// Containers, and the kind of their images if the containers do not store it.
    Containers(Option<&'static str>),
    /// One image of a bundle, with its id.
    Entry(String),
    /// One bare image.
    Image(ImageMetadata),
    /// Containers or any number of bare images.
    Images(Option<&'static str>),
}

/// A section of device code.
#[derive(Debug, Clone)]
pub(crate) struct DeviceSection {
    /// Its index in the section table.
    pub(crate) index: usize,
    pub(crate) name: String,
    /// Its offset in the object.
    pub(crate) offset: u64,
    pub(crate) size: u64,
    pub(crate) align: u64,
    /// Whether it is part of the program in memory.
    pub(crate) is_allocated: bool,
    pub(crate) holds: Holds,
}

/// The form of the images in a section of device code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SectionForm {
    /// The whole section is one image.
    OneImage,
    /// Images next to each other, without a container.
    BareImages,
    /// Containers in a row.
    Containers,
}

impl DeviceSection {
    /// The form of the images in the section, whose bytes are `data`.
    pub(crate) fn form(&self, data: &[u8]) -> SectionForm {
        match self.holds {
            Holds::Entry(_) | Holds::Image(_) => SectionForm::OneImage,
            Holds::Images(_) if Kind::of(data).is_none() => SectionForm::BareImages,
            Holds::Images(_) | Holds::Containers(_) => SectionForm::Containers,
        }
    }
}

/// Metadata of an image from the enclosing containers and sections.
#[derive(Debug, Clone, Default)]
pub(crate) struct ImageMetadata {
    pub(super) kinds: Vec<String>,
    pub(super) triple: String,
    pub(super) target: String,
    pub(super) id: Option<String>,
    pub(super) stored_as: Option<ImageKind>,
    pub(super) flags: Option<u32>,
    pub(super) strings: BTreeMap<String, String>,
    pub(super) compressed_size: Option<u64>,
    /// The compression method in a fatbinary.
    pub(super) compression: Option<&'static str>,
    /// Whether it is in a section of plain data.
    pub(super) in_data: bool,
}

/// Records the tree while the report is made. It holds the nodes that are not complete yet.
#[derive(Debug, Default)]
pub(super) struct Recorder {
    open: Vec<Open>,
    root: Option<Node>,
}

/// A node whose children are being found.
#[derive(Debug)]
struct Open {
    node: Node,
    /// The bytes that the ranges of its children refer to.
    bytes: FileSlice,
}

impl Recorder {
    /// The whole tree.
    pub(super) fn into_root(self) -> Option<Node> {
        self.root
    }

    /// Opens a node for the part at `range`, whose first image will be number `first`. The ranges
    /// of its children are offsets in `bytes`.
    pub(super) fn open(
        &mut self,
        kind: NodeKind,
        range: Range<u64>,
        first: usize,
        bytes: &FileSlice,
    ) {
        let node = Node {
            kind,
            range,
            images: first..first,
            children: Vec::new(),
        };
        self.open.push(Open {
            node,
            bytes: bytes.clone(),
        });
    }

    /// Closes the node that was opened last. `end`: the number after its last image.
    pub(super) fn close(&mut self, end: usize) {
        if let Some(Open { mut node, .. }) = self.open.pop() {
            node.images.end = end;
            self.attach(node);
        }
    }

    /// Records that the open node is compressed, and that `plain` has its decompressed contents.
    pub(super) fn inflates_to(&mut self, plain: &FileSlice) {
        if let Some(open) = self.open.last_mut() {
            open.bytes = plain.clone();
        }
    }

    fn attach(&mut self, node: Node) {
        match self.open.last_mut() {
            Some(Open { node: outer, .. }) => {
                if outer.kind.keeps_all() || !node.images.is_empty() || !node.children.is_empty() {
                    outer.children.push(node);
                }
            }
            None => self.root = Some(node),
        }
    }

    /// The range of `piece` in the node that is open.
    pub(super) fn range(&self, piece: &FileSlice) -> Range<u64> {
        self.open
            .last()
            .and_then(|outer| piece.range_in(&outer.bytes))
            .unwrap_or(0..piece.size())
    }
}
