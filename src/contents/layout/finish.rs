//! Second half of the attribution of bytes, on all cores: decompresses and inspects the compressed
//! data that the walk recorded, reads objects and images, and attributes each byte to the innermost
//! item that covers it.

use std::collections::HashMap;

use object::FileKind;
use rayon::prelude::*;
use xxhash_rust::xxh3::xxh3_128;

use super::super::bytes_of;
use super::super::walk::Walk;
use super::record::{Fill, Layout, Space, To};
use super::sweep::{Claim, apportion, assign};
use super::{
    Footprint, FunctionCode, Label, Leaf, Name, Names, Part, SizedImage, coff, elf, ptx, units,
};
use crate::formats::magic;
use crate::io::file_slice::FileSlice;

/// The result for a space.
struct Divided {
    shares: Vec<(To, u64)>,
    functions: Vec<FunctionCode>,
    units: Vec<Name>,
    digest: Option<u128>,
}

impl Walk<'_> {
    /// Returns the label of each byte, after the walk, and the errors. The errors of decompressed
    /// data come last.
    pub(in crate::contents) fn footprint(mut self) -> (Footprint, Vec<String>) {
        let Some(mut layout) = self.layout.take() else {
            return (Footprint::default(), self.errors);
        };
        let jobs = std::mem::take(&mut layout.jobs);
        let limits = self.limits();
        let inner: Vec<(Footprint, Vec<String>)> = jobs
            .into_par_iter()
            .map(|job| {
                let mut walk = Walk::within(&limits);
                if let Err(error) = job(&mut walk) {
                    walk.note(&error);
                }
                walk.footprint()
            })
            .collect();
        let Layout {
            spaces,
            names,
            images,
            ..
        } = &layout;
        let (names, images): (&Names, &[SizedImage]) = (names, images);
        let divided: Vec<Divided> = spaces
            .par_iter()
            .map(|space| divided(space, names, images))
            .collect();
        let mut errors = self.errors;
        let footprint = all_leaves(layout, divided, inner, &mut errors);
        (footprint, errors)
    }
}

/// Sets the translation units of leaves whose archive does not name one: the only unit that the
/// image names. If the image names none, it is the only unit that the images of the container name.
pub(in crate::contents) fn find_units(footprint: &mut Footprint) {
    let mut of_container: HashMap<u64, Vec<Name>> = HashMap::new();
    for image in footprint.images.iter().filter(|image| image.container != 0) {
        of_container
            .entry(image.container)
            .or_default()
            .extend(image.units.iter().filter(|unit| **unit != Name::NONE));
    }
    for all in of_container.values_mut() {
        all.sort();
        all.dedup();
    }
    for leaf in footprint
        .leaves
        .iter_mut()
        .filter(|leaf| leaf.label.unit == Name::NONE)
    {
        let image = leaf
            .label
            .image
            .place()
            .and_then(|image| footprint.images.get(image));
        let Some(image) = image else { continue };
        let shared = of_container.get(&image.container);
        if let [one] = image.units.as_slice() {
            leaf.label.unit = *one;
        } else if let (true, Some([one])) = (image.units.is_empty(), shared.map(Vec::as_slice)) {
            leaf.label.unit = *one;
        }
    }
}

/// Attributes each byte of a space to the item that covers it.
fn divided(space: &Space, names: &Names, images: &[SizedImage]) -> Divided {
    let data = space.piece.bytes();
    let size = data.len() as u64;
    let mut divided = Divided {
        shares: Vec::new(),
        functions: Vec::new(),
        units: Vec::new(),
        digest: None,
    };
    let mut rest = space.label;
    let mut claims = space.claims.clone();
    let to_labels = |own: Vec<Claim<Label>>| {
        own.into_iter().map(
            |Claim {
                 start,
                 end,
                 depth,
                 to,
             }| Claim {
                start,
                end,
                depth,
                to: To::Label(to),
            },
        )
    };
    match space.fill {
        Fill::Nothing => {}
        Fill::Host => match own_claims(data, space.label, names, false) {
            Some(own) => {
                rest.part = Part::Padding;
                claims.extend(to_labels(own.claims));
            }
            None => rest.part = Part::Other,
        },
        Fill::Device(image) => {
            let format = images.get(image).map_or("", |image| image.format);
            match own_claims(data, space.label, names, true) {
                Some(own) => {
                    rest.part = Part::Padding;
                    claims.extend(to_labels(own.claims));
                    divided.functions = own.functions;
                    divided.units = own.units;
                }
                None => rest.part = part_of(format),
            }
            if format == "ptx" {
                claims.extend(to_labels(ptx::read(data, space.label, names)));
                divided.units = units::of_symbols(data)
                    .iter()
                    .map(|unit| names.of(unit))
                    .collect();
            }
            if space.piece.is_made() {
                // These bytes are dropped after counting.
                divided.digest = digest(&space.piece);
                for function in &mut divided.functions {
                    let code = space.piece.slice(function.offset, function.size);
                    function.digest = code.as_ref().and_then(digest);
                }
            }
        }
    }
    divided.shares = assign(size, claims, To::Label(rest));
    space.piece.release();
    divided
}

/// A digest of the bytes. At most 256 KiB are in memory at a time.
fn digest(piece: &FileSlice) -> Option<u128> {
    const FEW: u64 = 64 << 10;
    if piece.size() <= FEW {
        Some(xxh3_128(piece.bytes()))
    } else {
        bytes_of::quick_digest(piece).ok()
    }
}

/// The claims of the items in an object, program or image; none for a file without sections or with
/// damage.
fn own_claims(data: &[u8], label: Label, names: &Names, device: bool) -> Option<elf::Contents> {
    if magic::elf_type(data).is_some() {
        return elf::read(data, label, names, device).ok();
    }
    let is_coff = matches!(
        FileKind::parse(data),
        Ok(FileKind::Coff | FileKind::CoffBig | FileKind::Pe32 | FileKind::Pe64)
    );
    if !is_coff || (device && !data.starts_with(b"MZ")) {
        return None;
    }
    coff::read(data, label, names)
        .ok()
        .map(|claims| elf::Contents {
            claims,
            ..elf::Contents::default()
        })
}

/// The purpose of the bytes of an image of this format, as long as its contents are unknown.
fn part_of(format: &str) -> Part {
    match format {
        "bitcode" => Part::Bitcode,
        "ptx" => Part::Ptx,
        "spirv" => Part::Spirv,
        "container" => Part::Container,
        _ => Part::Image,
    }
}

/// Collects the leaves of all spaces, from the innermost outwards.
fn all_leaves(
    mut layout: Layout,
    divided: Vec<Divided>,
    inner: Vec<(Footprint, Vec<String>)>,
    errors: &mut Vec<String>,
) -> Footprint {
    let mut footprint = Footprint {
        uncompressed: std::mem::take(&mut layout.uncompressed),
        ..Footprint::default()
    };
    let shares = set_images(&mut layout, divided);
    footprint.images = std::mem::take(&mut layout.images);
    let mut of_jobs: Vec<Vec<Leaf>> = Vec::new();
    for (mut one, of_one) in inner {
        let leaves = std::mem::take(&mut one.leaves);
        of_jobs.push(renumbered(&footprint, leaves));
        add(&mut footprint, one);
        errors.extend(of_one);
    }
    for mut one in std::mem::take(&mut layout.counted) {
        footprint.size += one.size;
        let leaves = std::mem::take(&mut one.leaves);
        let leaves = renumbered(&footprint, leaves);
        footprint.leaves.extend(leaves);
        add(&mut footprint, one);
    }
    let mut built: Vec<Vec<Leaf>> = layout.spaces.iter().map(|_| Vec::new()).collect();
    // Nested spaces have higher indices.
    for (index, shares) in shares.into_iter().enumerate().rev() {
        let mut leaves = Vec::new();
        for (to, bytes) in shares {
            match to {
                To::Label(label) => leaves.push(Leaf {
                    label,
                    file: bytes,
                    inflated: bytes,
                }),
                To::Unread(label, inflated, _) => leaves.push(Leaf {
                    label,
                    file: bytes,
                    inflated,
                }),
                To::Space(space) => {
                    let size = layout
                        .spaces
                        .get(space)
                        .map_or(0, |space| space.piece.size());
                    let held = built.get_mut(space).map(std::mem::take).unwrap_or_default();
                    leaves.extend(if size == bytes {
                        held
                    } else {
                        scaled(held, bytes, true)
                    });
                }
                To::Job(job) => {
                    let held = of_jobs.get_mut(job).map(std::mem::take).unwrap_or_default();
                    if held.is_empty() {
                        // The data could not be decompressed; that error is already recorded.
                        let label = Label {
                            part: Part::Container,
                            ..layout.spaces[index].label
                        };
                        leaves.push(Leaf {
                            label,
                            file: bytes,
                            inflated: bytes,
                        });
                    }
                    leaves.extend(scaled(held, bytes, false));
                }
            }
        }
        built[index] = leaves;
    }
    for root in layout.roots {
        footprint.size += layout.spaces[root].piece.size();
        footprint.leaves.append(&mut built[root]);
    }
    footprint
}

/// Returns `leaves` with image indices that follow the images of `footprint`.
fn renumbered(footprint: &Footprint, leaves: Vec<Leaf>) -> Vec<Leaf> {
    let first = footprint.images.len();
    let renumber = |leaf: Leaf| {
        let image = leaf.label.image.after(first);
        Leaf {
            label: Label {
                image,
                ..leaf.label
            },
            ..leaf
        }
    };
    leaves.into_iter().map(renumber).collect()
}

/// Adds the images and the uncompressed containers of `one` to `footprint`.
fn add(footprint: &mut Footprint, one: Footprint) {
    footprint.images.extend(one.images);
    footprint.uncompressed.extend(one.uncompressed);
}

/// Moves the properties of images into `layout.images`, and returns the shares.
fn set_images(layout: &mut Layout, divided: Vec<Divided>) -> Vec<Vec<(To, u64)>> {
    let each = layout.spaces.iter().zip(divided).map(|(space, divided)| {
        if let Fill::Device(image) = space.fill
            && let Some(image) = layout.images.get_mut(image)
        {
            (image.functions, image.units, image.digest) =
                (divided.functions, divided.units, divided.digest);
        }
        divided.shares
    });
    each.collect()
}

/// Scales leaves so that they have `bytes` of the file together, in proportion to their former
/// bytes. With `inflated`, the uncompressed sizes are scaled as well.
fn scaled(mut leaves: Vec<Leaf>, bytes: u64, inflated: bool) -> Vec<Leaf> {
    let weights: Vec<u64> = leaves.iter().map(|leaf| leaf.file).collect();
    for (leaf, part) in leaves.iter_mut().zip(apportion(bytes, &weights)) {
        leaf.file = part;
        if inflated {
            leaf.inflated = part;
        }
    }
    leaves
}
