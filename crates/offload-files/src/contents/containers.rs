//! Inspection of containers: OffloadBinaries, bundles, compressed bundles and fatbinaries, of which
//! a section or a file may hold several in a row; and text bundles.

use std::io::Read;
use std::ops::Range;

use anyhow::{Context, Result, bail};

use super::layout::Part;
use super::report::{Image, Place, Step};
use super::tree::{ImageMetadata, NodeKind};
use super::walk::{Cursor, Walk};
use super::{bytes_of, image, inflate};
use offld_system::io::file_slice::FileSlice;
use offload_formats::bundle::{self, Id, Slot};
use offload_formats::compressed::{Header, Method, Unpack};
use offload_formats::containers::{Fault, Item, Kind, row};
use offload_formats::error::Malformed;
use offload_formats::model::OffloadKinds;
use offload_formats::{embedded, fatbin, offload_binary};

/// Limit of the bytes that are decompressed to list the entries of a compressed bundle.
const LARGEST_HEAD: u64 = 4 << 20;

/// A container: `within` is its offset in the bytes of `cursor`.
struct Container<'a> {
    name: &'static str,
    cursor: &'a Cursor,
    within: u64,
    piece: FileSlice,
}

impl Container<'_> {
    /// The location of the container. `packed` has the compression method and the uncompressed
    /// size.
    fn place(&self, version: Option<u32>, packed: Option<(&'static str, u64)>) -> Place {
        self.cursor.place.then(Step::Container {
            name: self.name,
            offset: self.cursor.piece.file_offset(self.within),
            size: self.piece.size(),
            version,
            compression: packed.map(|(method, _)| method),
            plain_size: packed.map(|(_, size)| size),
            within: self.within,
        })
    }

    /// Marks the bytes as uncompressed in the layout.
    fn not_compressed(&self, walk: &mut Walk<'_>) {
        walk.not_compressed(self.cursor, self.within, self.piece.size(), self.name);
    }
}

/// Inspects every container in `cursor`, in order. Only zeros may be between them.
pub(super) fn sequence(walk: &mut Walk<'_>, cursor: &Cursor) -> Result<()> {
    for item in row(cursor.piece.bytes()) {
        walk.signals.check()?;
        let Item { kind, range, .. } = match item {
            Ok(item) => item,
            Err(Fault { at, reason, .. }) => {
                walk.note(&anyhow::Error::from(reason).context(cursor.place.to_string()));
                return containers_after(walk, cursor, at + 1);
            }
        };
        let piece = part(&cursor.piece, range.start, range.end - range.start)?;
        inspect_container(walk, cursor, kind, range.start, piece.clone())?;
        // The headers, which are between the images, count as memory in use as well.
        piece.release();
    }
    Ok(())
}

/// Inspects the containers from `at` on, after an item whose size is not plausible. Only containers
/// with valid headers count.
fn containers_after(walk: &mut Walk<'_>, cursor: &Cursor, at: u64) -> Result<()> {
    let (found, _) = embedded::all(cursor.piece.from(at).bytes());
    for container in found {
        let at = at + container.offset;
        let piece = part(&cursor.piece, at, container.size)?;
        if let Some(kind) = Kind::of(piece.bytes()) {
            inspect_container(walk, cursor, kind, at, piece)?;
        }
    }
    Ok(())
}

/// Inspects the contents of a zstd frame that is an image by itself.
pub(super) fn zstd_frame(walk: &mut Walk<'_>, cursor: &Cursor) -> Result<()> {
    let size = cursor.piece.size();
    let plain_size = match inflate::zstd_frame_size(&cursor.piece).map_err(format_error) {
        Ok(plain_size) => plain_size,
        Err(error) => {
            walk.note(&error.context(cursor.place.to_string()));
            return image::add_stored(walk, cursor, "zstd", size);
        }
    };
    if !may_inflate(walk, cursor, plain_size) {
        not_inflated(walk, cursor, "zstd", plain_size);
        return Ok(());
    }
    let packed = cursor.clone();
    walk.inflated(cursor, move |walk| {
        let cursor = &packed;
        let plain = match inflate::zstd_frame(&cursor.piece)
            .map_err(format_error)
            .with_context(|| cursor.place.to_string())
        {
            Ok(plain) => plain,
            Err(error) => return damaged(walk, cursor, "zstd", plain_size, &error),
        };
        let container = Container {
            name: "zstd",
            cursor,
            within: 0,
            piece: cursor.piece.clone(),
        };
        let place = container.place(None, Some((name_of(Method::Zstd), plain.size())));
        let facts = ImageMetadata {
            compressed_size: Some(size),
            ..cursor.facts.clone()
        };
        let inner = walk.root(&cursor.deeper(plain, place, facts));
        walk.enter(&inner);
        Ok(())
    })
}

/// Lists the image in a zstd frame without decompressing it.
pub(super) fn unread_frame(walk: &mut Walk<'_>, cursor: &Cursor) {
    let size = cursor.piece.size();
    let facts = ImageMetadata {
        compressed_size: Some(size),
        ..cursor.facts.clone()
    };
    let plain_size = inflate::zstd_frame_size(&cursor.piece).unwrap_or(size);
    let image = image::unread(
        walk.images.len(),
        &Cursor {
            facts,
            ..cursor.clone()
        },
        "zstd",
        plain_size,
    );
    let image = Image {
        offset: cursor.piece.file_offset(0),
        ..image
    };
    walk.push_image(image, &cursor.piece);
}

/// Inspects the container `piece` at offset `within` in `cursor`. Errors in its contents are
/// recorded, because the next container can still be found.
pub(super) fn inspect_container(
    walk: &mut Walk<'_>,
    cursor: &Cursor,
    kind: Kind,
    within: u64,
    piece: FileSlice,
) -> Result<()> {
    let container = Container {
        name: kind.name(),
        cursor: &Cursor {
            spot: walk.container(cursor, within, piece.size(), kind.name()),
            ..cursor.clone()
        },
        within,
        piece,
    };
    let done = walk.node(
        NodeKind::Container(kind),
        &container.piece,
        |walk| match kind {
            Kind::OffloadBinary => offload_binaries(walk, &container),
            Kind::Bundle => binary_bundle(walk, &container),
            Kind::CompressedBundle => compressed_bundle(walk, &container),
            Kind::Fatbinary => fatbinary(walk, &container),
        },
    );
    done.with_context(|| cursor.place.to_string())
}

fn offload_binaries(walk: &mut Walk<'_>, container: &Container<'_>) -> Result<()> {
    let Container { cursor, piece, .. } = container;
    let head = offload_binary::Head::read(piece.bytes(), 0)?;
    let version = Some(head.version);
    let Some(packed) = head.packed else {
        container.not_compressed(walk);
        let place = container.place(version, None);
        let inner = cursor.deeper(piece.clone(), place, cursor.facts.clone());
        if let Err(error) = offload_images(walk, inner) {
            walk.note(&error);
        }
        return Ok(());
    };
    let method = name_of(inflate::method_of(&packed));
    let place = container.place(version, Some((method, packed.plain_size)));
    let (whole, data) = (piece.clone(), piece.from(packed.at));
    let facts = ImageMetadata {
        compressed_size: Some(head.size),
        ..cursor.facts.clone()
    };
    let inner = cursor.deeper(data, place, facts);
    if !may_inflate(walk, &inner, packed.plain_size) {
        not_inflated(walk, &inner, "unread", packed.plain_size);
        return Ok(());
    }
    let done = walk.inflated(&inner.clone(), move |walk| {
        let plain = match inflate::offload_binary(&whole, &head, &packed)
            .map_err(format_error)
            .with_context(|| inner.place.to_string())
        {
            Ok(plain) => plain,
            Err(error) => return damaged(walk, &inner, "unread", packed.plain_size, &error),
        };
        walk.tree.inflates_to(&plain);
        let inner = walk.root(&Cursor {
            piece: plain,
            ..inner
        });
        offload_images(walk, inner)
    });
    if let Err(error) = done {
        walk.note(&error);
    }
    Ok(())
}

/// The string of an OffloadBinary with its role among the files of `offld split`.
pub(crate) const SPLIT_ROLE: &str = "offld";
/// The role of a host half. It has no device code, and its host code is incomplete.
pub(crate) const SPLIT_HOST: &str = "split-host";
/// The role of a recipe of `offld split --kpack`, which has no device code either.
pub(crate) const SPLIT_KPACK: &str = "split-kpack";

/// Inspects the images of one OffloadBinary that is not compressed.
fn offload_images(walk: &mut Walk<'_>, cursor: Cursor) -> Result<()> {
    let images =
        offload_binary::read_all(cursor.piece.bytes()).with_context(|| cursor.place.to_string())?;
    let role = images.first().and_then(|image| image.get(SPLIT_ROLE));
    let is_for_merge =
        role.is_some_and(|role| [SPLIT_HOST, SPLIT_KPACK].map(str::as_bytes).contains(&role));
    for image in images {
        let piece = part(&cursor.piece, image.at, image.image.len() as u64)?;
        let mut facts = cursor.facts.clone();
        if is_for_merge {
            facts.kinds = vec!["host".to_owned()];
            let inner = cursor.deeper(piece, cursor.place.clone(), facts).inside();
            image::add_stored(walk, &inner, "unknown", image.image.len() as u64)?;
            continue;
        }
        let (triple, arch) = (image.triple(), image.arch());
        let kinds = OffloadKinds::from_stored(image.offload_kind, &triple);
        let kinds: Vec<String> = kinds.iter().map(|kind| kind.name().to_owned()).collect();
        replace(&mut facts, kinds, &triple, &arch);
        facts.stored_as = Some(image.image_kind);
        facts.flags = Some(image.flags);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        facts.strings = image
            .strings
            .iter()
            .map(|(key, value)| (text(key), text(value)))
            .collect();
        walk.enter(&cursor.deeper(piece, cursor.place.clone(), facts).inside());
    }
    Ok(())
}

/// Replaces metadata by the values of an inner container. Empty values replace nothing, but a new
/// triple also replaces the target.
fn replace(facts: &mut ImageMetadata, kinds: Vec<String>, triple: &str, target: &str) {
    if !kinds.is_empty() {
        facts.kinds = kinds;
    }
    if !triple.is_empty() {
        facts.triple = triple.to_owned();
    }
    if !triple.is_empty() || !target.is_empty() {
        facts.target = target.to_owned();
    }
}

fn binary_bundle(walk: &mut Walk<'_>, container: &Container<'_>) -> Result<()> {
    let Container { cursor, piece, .. } = container;
    let head = bundle::read_head(piece.bytes(), piece.size()).map_err(Malformed::or_io)?;
    let place = container.place(None, None);
    container.not_compressed(walk);
    for slot in head.slots {
        let piece = part(piece, range_of(&slot).start, slot.size)?;
        let facts = with_id(&cursor.facts, &slot.id);
        walk.enter(&cursor.deeper(piece, place.clone(), facts).inside());
    }
    Ok(())
}

/// Returns `facts` with the kind, triple and target of a bundle's entry id.
pub(super) fn with_id(facts: &ImageMetadata, stored: &str) -> ImageMetadata {
    let id = Id::parse(stored);
    let mut facts = facts.clone();
    // `hip` and `hipv4` both mean HIP code.
    let kind = if id.kind == "hipv4" {
        "hip".to_owned()
    } else {
        id.kind
    };
    // In a bundle, a triple without an environment has an empty one: it ends with `-`.
    replace(
        &mut facts,
        vec![kind],
        id.triple.trim_end_matches('-'),
        &id.target_id,
    );
    facts.id = Some(stored.to_owned());
    facts
}

/// Inspects the code objects of a text bundle.
pub(super) fn text_bundle(walk: &mut Walk<'_>, cursor: &Cursor, comment: &str) -> Result<()> {
    let spans = bundle::text::scan(comment, bytes_of::reader(&cursor.piece));
    let spans = spans
        .map_err(anyhow::Error::from)
        .map_err(format_error)
        .with_context(|| cursor.place.to_string())?;
    let container = Container {
        name: "text-bundle",
        cursor,
        within: 0,
        piece: cursor.piece.clone(),
    };
    let place = container.place(None, None);
    let cursor = &Cursor {
        spot: walk.container(cursor, 0, cursor.piece.size(), container.name),
        ..cursor.clone()
    };
    for span in spans {
        let piece = part(&cursor.piece, span.start, span.size)?;
        walk.enter(
            &cursor
                .deeper(piece, place.clone(), with_id(&cursor.facts, &span.id))
                .inside(),
        );
    }
    Ok(())
}

fn compressed_bundle(walk: &mut Walk<'_>, container: &Container<'_>) -> Result<()> {
    let Container { cursor, piece, .. } = container;
    let header = Header::read(piece.bytes(), 0)?;
    let packed = Some((name_of(header.method), header.plain_size));
    let place = container.place(Some(header.version.into()), packed);
    let facts = ImageMetadata {
        compressed_size: Some(piece.size()),
        ..cursor.facts.clone()
    };
    let inner = cursor
        .deeper(piece.from(header.size), place.clone(), facts)
        .inside();
    let done = if !header.is_likely(inner.piece.size()) {
        let fault = Malformed::new(
            "uncompressed size is more than the compressed data can hold",
            0,
        );
        Err(anyhow::Error::from(fault)).with_context(|| place.to_string())
    } else if walk.options.headers_only || !may_inflate(walk, &inner, header.plain_size) {
        walk.unread(&inner, Part::Container, header.plain_size);
        list_entries(walk, &inner, header)
            .map_err(format_error)
            .with_context(|| place.to_string())
    } else {
        walk.inflated(&inner.clone(), move |walk| {
            let plain = inflate::compressed_bundle(&inner.piece, header);
            let plain = match plain
                .map_err(format_error)
                .with_context(|| inner.place.to_string())
            {
                Ok(plain) => plain,
                Err(error) => return damaged_bundle(walk, &inner, header, &error),
            };
            let inner = walk.root(&Cursor {
                piece: plain,
                ..inner
            });
            walk.enter(&inner);
            Ok(())
        })
    };
    if let Err(error) = done.map_err(format_error) {
        walk.note(&error);
    }
    Ok(())
}

/// Records why the bundle at `cursor` cannot be decompressed, and lists its entries if the inner
/// header can be decompressed. Otherwise the whole bundle is an image.
fn damaged_bundle(
    walk: &mut Walk<'_>,
    cursor: &Cursor,
    header: Header,
    error: &anyhow::Error,
) -> Result<()> {
    if walk.layout.is_some() || list_entries(walk, cursor, header).is_err() {
        return damaged(walk, cursor, "unread", header.plain_size, error);
    }
    walk.note(error);
    Ok(())
}

/// Records why the image at `packed` cannot be decompressed. The report has the image nevertheless,
/// with its stored bytes only.
fn damaged(
    walk: &mut Walk<'_>,
    packed: &Cursor,
    format: &'static str,
    plain_size: u64,
    error: &anyhow::Error,
) -> Result<()> {
    walk.note(error);
    let packed = walk.root(packed);
    image::add_stored(walk, &packed, format, plain_size)
}

/// Lists the entries of a compressed bundle. Only the header of the inner bundle is decompressed.
fn list_entries(walk: &mut Walk<'_>, cursor: &Cursor, header: Header) -> Result<()> {
    let mut plain = Unpack::new(header, bytes_of::reader(&cursor.piece), 0)?;
    let mut start = [0; bundle::MAGIC.len()];
    plain.read_exact(&mut start)?;
    if !bundle::is_bundle(&start) {
        bail!("compressed data that is not a bundle: not decompressed");
    }
    let head = bundle::read_head(start.chain(plain.take(LARGEST_HEAD)), header.plain_size)
        .map_err(Malformed::or_io)?;
    let packed = &cursor.piece;
    walk.node_at(NodeKind::Row, 0..header.plain_size, packed, |walk| {
        let bundle = NodeKind::Container(Kind::Bundle);
        walk.node_at(bundle, 0..head.size, packed, |walk| {
            for slot in head.slots {
                list_entry(walk, cursor, slot, head.size);
            }
        });
    });
    Ok(())
}

/// Lists the entry `slot` of a bundle of `size` bytes.
fn list_entry(walk: &mut Walk<'_>, cursor: &Cursor, slot: Slot, size: u64) {
    let place = cursor.place.then(Step::Container {
        name: "bundle",
        offset: None,
        size,
        version: None,
        compression: None,
        plain_size: None,
        within: 0,
    });
    let entry = cursor.deeper(
        cursor.piece.clone(),
        place,
        with_id(&cursor.facts, &slot.id),
    );
    let format = if slot.size == 0 { "empty" } else { "unread" };
    let image = image::unread(walk.images.len(), &entry, format, slot.size);
    walk.node_at(NodeKind::Image, range_of(&slot), &cursor.piece, |walk| {
        walk.images.push(image)
    });
}

/// The range of an entry in its bundle. The offset of an empty entry has no meaning.
fn range_of(slot: &Slot) -> Range<u64> {
    let start = if slot.size == 0 { 0 } else { slot.offset };
    start..start.saturating_add(slot.size)
}

fn fatbinary(walk: &mut Walk<'_>, container: &Container<'_>) -> Result<()> {
    let Container { cursor, piece, .. } = container;
    let place = container.place(Some(1), None);
    let (entries, fault) = fatbin::entries(piece.bytes());
    for entry in entries {
        let mut facts = cursor.facts.clone();
        let triple = if entry.is_64 {
            "nvptx64-nvidia-cuda"
        } else {
            "nvptx-nvidia-cuda"
        };
        replace(&mut facts, Vec::new(), triple, &entry.arch);
        facts.compressed_size = entry.method.map(|_| entry.stored.len() as u64);
        facts.compression = entry.method.map(|method| {
            if method == fatbin::Method::Zstd {
                "zstd"
            } else {
                "lz4"
            }
        });
        let stored = part(piece, entry.at, entry.stored.len() as u64)?;
        let inner = cursor.deeper(stored.clone(), place.clone(), facts).inside();
        let done = walk.node(NodeKind::FatbinaryEntry, &stored, |walk| {
            fatbinary_entry(walk, inner, &entry)
        });
        if let Err(error) = done {
            walk.note(&error);
        }
    }
    if let Some(fault) = fault {
        walk.note(&anyhow::Error::from(fault).context(place.to_string()));
    }
    Ok(())
}

/// Whether the compressed data at `cursor` may be decompressed; if not, records that. All
/// decompressed data of a file counts together, because otherwise many small containers could evade
/// the limit. Callers ask in the order of the containers, so that the answers are the same with any
/// number of threads.
fn may_inflate(walk: &mut Walk<'_>, cursor: &Cursor, plain_size: u64) -> bool {
    let allowed = walk.allowance.take(plain_size);
    if let Err(limit) = &allowed {
        walk.errors.push(format!("{}: {limit}", cursor.place));
    }
    allowed.is_ok()
}

/// Adds an image whose data is not decompressed. `plain_size` is its uncompressed size.
fn not_inflated(walk: &mut Walk<'_>, cursor: &Cursor, format: &'static str, plain_size: u64) {
    let image = image::unread(walk.images.len(), cursor, format, plain_size);
    walk.unread_image(cursor, &image);
    walk.push_image(image, &cursor.piece);
}

/// Inspects the code of an entry. It is decompressed unless only headers are requested or it needs
/// too much memory.
fn fatbinary_entry(walk: &mut Walk<'_>, cursor: Cursor, entry: &fatbin::Entry<'_>) -> Result<()> {
    let (packed, size) = (entry.stored.len() as u64, entry.plain_size);
    let format = match entry.kind {
        fatbin::Kind::Ptx => "ptx",
        fatbin::Kind::Elf => "cubin",
        fatbin::Kind::LtoIr => return image::add_stored(walk, &cursor, "lto-ir", size),
        fatbin::Kind::Other(_) => "unread",
    };
    let is_allowed = |walk: &mut Walk<'_>, method| {
        inflate::is_lie(packed, method, size) || may_inflate(walk, &cursor, size)
    };
    let may_inflate = |walk: &mut Walk<'_>, method| {
        !walk.options.headers_only
            && inflate::fits(packed, method, size)
            && is_allowed(walk, method)
    };
    if entry
        .method
        .is_some_and(|method| !may_inflate(walk, method))
    {
        not_inflated(walk, &cursor, format, entry.plain_size);
        return Ok(());
    }
    let (kind, plain_size) = (entry.kind, entry.plain_size);
    let Some(method) = entry.method else {
        walk.not_compressed(&cursor, 0, cursor.piece.size(), "fatbinary");
        return fatbinary_code(walk, &cursor, kind);
    };
    walk.inflated(&cursor.clone(), move |walk| {
        let plain = inflate::fatbinary_entry(&cursor.piece, method, plain_size)
            .with_context(|| cursor.place.to_string());
        // LZ4 data is decompressed from the memory map.
        cursor.piece.release();
        let plain = match plain {
            Ok(plain) => plain,
            Err(error) => return damaged(walk, &cursor, format, plain_size, &error),
        };
        let inner = walk.root(&Cursor {
            piece: plain,
            ..cursor
        });
        fatbinary_code(walk, &inner, kind)
    })
}

/// Inspects the code of an entry after decompression, if any.
fn fatbinary_code(walk: &mut Walk<'_>, cursor: &Cursor, kind: fatbin::Kind) -> Result<()> {
    // Cubins are padded, and PTX ends with a zero.
    let size = fatbin::unpadded(kind, cursor.piece.bytes());
    let piece = part(&cursor.piece, 0, size).with_context(|| cursor.place.to_string())?;
    walk.enter(&Cursor {
        piece,
        ..cursor.clone()
    });
    Ok(())
}

/// The `size` bytes at offset `at` of `piece`.
fn part(piece: &FileSlice, at: u64, size: u64) -> Result<FileSlice> {
    piece
        .slice(at, size)
        .ok_or_else(|| Malformed::new("past the end", at).into())
}

fn name_of(method: Method) -> &'static str {
    match method {
        Method::Zlib => "zlib",
        Method::Zstd => "zstd",
    }
}

/// The format error in an error of a reader, if there is one. Otherwise returns the error
/// unchanged.
pub(super) fn format_error(error: anyhow::Error) -> anyhow::Error {
    match error.downcast::<std::io::Error>() {
        Ok(error) => Malformed::or_io(error),
        Err(error) => error,
    }
}
