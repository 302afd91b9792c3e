//! The tree of a file: the parts of it that hold device code, down to the images. The walk through
//! a file records it for the report; [`crate::edit`] rebuilds a file from it, bottom up.
//!
//! A node has no bytes, only a range in the bytes of the node around it, so a tree takes little
//! memory. The bytes of compressed parts are inflated again when they are needed.

use std::ops::Range;

use object::FileKind;

use super::objects::DeviceSection;
use super::report::Image;
use super::walk::Walk;
use offld_system::io::file_slice::FileSlice;
use offload_formats::containers::Kind;

/// A part of a file that holds device code.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) kind: NodeKind,
    /// Its bytes, within those of the node around it. If that node is compressed, the range is in
    /// the inflated bytes. A file of its own starts at 0.
    pub(crate) range: Range<u64>,
    /// The numbers of the images in it, as the report has them.
    pub(crate) images: Range<usize>,
    /// The parts in it, in the order of the report. Every section of device code, every container
    /// and every entry of a container is there, other parts only if they have such parts or images.
    pub(crate) children: Vec<Node>,
}

impl Node {
    /// The number of the image that is all of this part. An image may embed others.
    pub(crate) fn image(&self) -> Option<usize> {
        match (&self.kind, self.children.as_slice()) {
            (NodeKind::Image, _) => Some(self.images.start),
            (NodeKind::FatbinaryEntry | NodeKind::ZstdFrame, [inner]) => inner.image(),
            _ => None,
        }
    }
}

/// What a part of a file is.
#[derive(Debug)]
pub(crate) enum NodeKind {
    /// An image, the first of [`Node::images`]. It embeds the others.
    Image,
    /// An archive. If a container or section holds it, it is an image for several devices.
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
    /// A section of plain data with device code in it that nothing refers to.
    Data,
    /// Containers in a row.
    Row,
    /// A container of a row. Its children are its entries, in order.
    Container(Kind),
    /// An entry of a fatbinary, as it is stored. Its child is the image.
    FatbinaryEntry,
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
        )
    }
}

/// The nodes that the walk is in.
#[derive(Debug, Default)]
pub(super) struct Recorder {
    open: Vec<Open>,
    root: Option<Node>,
}

/// A node whose children are being found.
#[derive(Debug)]
struct Open {
    node: Node,
    /// The bytes that the ranges of its children count in.
    bytes: FileSlice,
}

impl Recorder {
    /// The whole tree.
    pub(super) fn into_root(self) -> Option<Node> {
        self.root
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
    fn range(&self, piece: &FileSlice) -> Range<u64> {
        self.open
            .last()
            .and_then(|outer| piece.range_in(&outer.bytes))
            .unwrap_or(0..piece.size())
    }
}

impl Walk<'_> {
    /// Goes into the part `piece`: the parts that `go` finds are children of its node.
    pub(super) fn node<R>(
        &mut self,
        kind: NodeKind,
        piece: &FileSlice,
        go: impl FnOnce(&mut Self) -> R,
    ) -> R {
        let range = self.tree.range(piece);
        self.node_at(kind, range, piece, go)
    }

    /// As [`Walk::node`], for a part at `range` of compressed bytes that are not inflated: `packed`.
    pub(super) fn node_at<R>(
        &mut self,
        kind: NodeKind,
        range: Range<u64>,
        packed: &FileSlice,
        go: impl FnOnce(&mut Self) -> R,
    ) -> R {
        // Sizes do not need the tree, and compressed parts are gone into in another order for them.
        if self.layout.is_some() {
            return go(self);
        }
        let first = self.images.len();
        let node = Node {
            kind,
            range,
            images: first..first,
            children: Vec::new(),
        };
        self.tree.open.push(Open {
            node,
            bytes: packed.clone(),
        });
        let done = go(self);
        if let Some(Open { mut node, .. }) = self.tree.open.pop() {
            node.images.end = self.images.len();
            self.tree.attach(node);
        }
        done
    }

    /// Says that the node that is open is compressed, and inflates to `plain`.
    pub(super) fn node_inflates_to(&mut self, plain: &FileSlice) {
        if let Some(open) = self.tree.open.last_mut() {
            open.bytes = plain.clone();
        }
    }

    /// Adds an image to the report, and a node for it, whose bytes are in `piece`.
    pub(super) fn push_image(&mut self, image: Image, piece: &FileSlice) {
        self.node(NodeKind::Image, piece, |walk| walk.images.push(image));
    }
}
