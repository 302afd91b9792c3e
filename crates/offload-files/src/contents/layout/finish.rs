//! Second half of the attribution of bytes, on all cores: decompresses and inspects the compressed
//! data that the walk recorded, reads objects and images, and attributes each byte to the innermost
//! item that covers it. Also reads PTX.

use std::collections::HashMap;
use std::ops::Range;

use memchr::memmem;
use object::FileKind;
use rayon::prelude::*;
use xxhash_rust::xxh3::xxh3_128;

use super::super::bytes_of;
use super::super::walk::Walk;
use super::record::{Fill, Layout, Space, To};
use super::{
    Claim, Footprint, FunctionCode, Label, Leaf, Name, Names, Part, SizedImage, apportion, assign,
    coff, elf,
};
use offld_system::io::file_slice::FileSlice;
use offload_formats::magic;

/// The result of [`divided`] for a space.
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
                claims.extend(to_labels(ptx_claims(data, space.label, names)));
                divided.units = elf::units_of_symbols(data)
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

// Contents of PTX: the text of each kernel and function, from its declaration to its closing
// brace.

/// The claims to the whole text and to the text of each function. Their labels are `label` with the
/// purpose PTX and the name of the function.
fn ptx_claims(data: &[u8], label: Label, names: &Names) -> Vec<Claim<Label>> {
    const WHOLE: u32 = 2;
    const FUNCTION: u32 = 4;
    let label = Label {
        part: Part::Ptx,
        ..label
    };
    let mut claims = vec![Claim {
        start: 0,
        end: data.len() as u64,
        depth: WHOLE,
        to: label,
    }];
    for (text, name) in ptx_functions(data) {
        let (start, end, kernel) = (text.start as u64, text.end as u64, names.of(name));
        claims.push(Claim {
            start,
            end,
            depth: FUNCTION,
            to: Label { kernel, ..label },
        });
    }
    claims
}

/// The functions with a body, in order: the ranges of their text, and their names. Takes linear
/// time, whatever the number of directives.
fn ptx_functions(data: &[u8]) -> Vec<(Range<usize>, &[u8])> {
    let words = [&b".entry"[..], b".func"]
        .map(|word| memmem::find_iter(data, word).map(|at| at..at + word.len()));
    let mut words: Vec<Range<usize>> = words.into_iter().flatten().collect();
    words.sort_by_key(|word| word.start);
    let mut found = Vec::new();
    // The end of the last function, and the position of the last brace or semicolon.
    let (mut end, mut head_end) = (0, 0);
    for word in words {
        if word.start < end {
            continue;
        }
        if head_end < word.end {
            head_end = data
                .get(word.end..)
                .and_then(|rest| memchr::memchr2(b'{', b';', rest))
                .map_or(data.len(), |at| word.end + at);
        }
        let before = data.get(end..word.start).unwrap_or_default();
        let start = end + memchr::memrchr(b'\n', before).map_or(0, |line| line + 1);
        end = word.end;
        let is_function = data.get(head_end) == Some(&b'{')
            && data.get(start..word.start).is_some_and(is_declaration);
        let Some(name) = data
            .get(word.end..head_end)
            .filter(|_| is_function)
            .and_then(ptx_name)
        else {
            continue;
        };
        let body = data.get(head_end..).unwrap_or_default();
        end = memmem::find(body, b"\n}").map_or(data.len(), |closing| head_end + closing + 2);
        end += usize::from(data.get(end) == Some(&b'\n'));
        found.push((start..end, name));
    }
    found
}

/// Whether the text before `.entry` or `.func` on a line consists of other directives only.
fn is_declaration(before: &[u8]) -> bool {
    let mut words = before
        .split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty());
    words.all(|word| matches!(word, b".visible" | b".weak" | b".extern" | b".common"))
}

/// The name in the head of a function, after the return value in parentheses.
fn ptx_name(head: &[u8]) -> Option<&[u8]> {
    /// Limit of the return value and name in bytes.
    const LONGEST: usize = 1 << 16;
    let mut head = head.get(..LONGEST).unwrap_or(head).trim_ascii_start();
    if head.starts_with(b"(") {
        head = head
            .get(memchr::memchr(b')', head)? + 1..)?
            .trim_ascii_start();
    }
    let length = head
        .iter()
        .take_while(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'%'))
        .count();
    head.get(..length).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_found_with_their_bodies_and_prototypes_are_not() {
        let text = b".version 8.0\n.target sm_80\n.extern .func (.param .b32 r) vprintf\n(\n.param .b64 a\n)\n;\n\
            .visible .entry _Z1kPf(\n.param .u64 p\n)\n{\n\tret;\n}\n\n.func  (.param .b32 r) _Z1fv()\n{\n{\n\tret;\n}\n}\n// .entry none { \n";
        let [(first, of_first), (_, of_second)] = &ptx_functions(text)[..] else {
            panic!("{:?}", ptx_functions(text))
        };
        assert_eq!((*of_first, *of_second), (&b"_Z1kPf"[..], &b"_Z1fv"[..]));
        let first = &text[first.clone()];
        assert!(first.starts_with(b".visible .entry") && first.ends_with(b"ret;\n}\n"));
    }

    /// Each of these texts would take a minute if every directive were searched to the end of the
    /// text.
    #[test]
    fn many_directives_are_gone_through_once() {
        const MANY: usize = 20_000;
        let started = std::time::Instant::now();
        let bodies = ".func f()\n{\nret;\n}\n".repeat(MANY);
        assert_eq!(ptx_functions(bodies.as_bytes()).len(), MANY);
        for (text, count) in [
            (".func f();\n", 0),
            (".func\n", 0),
            (".func (\n", 0),
            (".func f\n", 0),
            (".entry\n", 0),
        ] {
            let with_body = format!("{}.entry k{{\n}}\n", text.repeat(MANY));
            assert_eq!(
                ptx_functions(with_body.as_bytes()).len(),
                count + 1,
                "{text}"
            );
            assert_eq!(
                ptx_functions(text.repeat(MANY).as_bytes()).len(),
                count,
                "{text}"
            );
        }
        assert!(started.elapsed() < std::time::Duration::from_secs(20));
    }
}
