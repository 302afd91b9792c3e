//! Adds and removes sections of COFF objects, with the layout of llvm-objcopy. The contents and
//! relocations of each section follow without gaps, then new tables of symbols and long names. An
//! object with too many sections for the small format becomes a big object.

use super::strings::Strings;
use super::{NewSection, section_name};
use crate::error::Malformed;
use crate::formats::coff::{RELOCATION_SIZE, SECTION_SIZE};
use crate::formats::compose::{Part, PartList};

mod read;
mod symbols;

use read::{Object, Section};

/// IMAGE_SCN_MEM_READ and IMAGE_SCN_LNK_REMOVE: the linker omits the section.
const LINKER_REMOVES: u32 = 0x4000_0800;
const MORE_RELOCATIONS: u32 = 0x0100_0000;
/// The largest number of sections in a small object.
const MOST_SECTIONS: usize = 65279;
/// The class ID in a big object's header, after machine and time.
const BIG_CLASS: [u8; 16] = [
    0xc7, 0xa1, 0xba, 0xd1, 0xee, 0xba, 0xa9, 0x4b, 0xaf, 0x20, 0xfa, 0xf6, 0x6a, 0xa4, 0xdc, 0xb8,
];
const TOO_LARGE: Malformed = Malformed {
    what: "too large for a COFF object, which has at most 4 GiB",
    at: 0,
};

/// Returns the object `data` without the sections for which `remove` is true, and with `new` as its
/// last sections.
pub(super) fn rewrite(
    data: &[u8],
    remove: &dyn Fn(&[u8]) -> bool,
    new: &[NewSection<'_>],
) -> Result<Vec<Part>, Malformed> {
    let mut object = Object::parse(data)?;
    symbols::remove_sections(&mut object, remove)?;
    let names: Vec<Vec<u8>> = new.iter().map(|section| section_name(section.id)).collect();
    add(&mut object, new, &names)?;
    let mut strings = Strings::new(4);
    strings.add(
        object
            .sections
            .iter()
            .map(|section| section.name)
            .filter(|name| is_long(name)),
    );
    strings.add(
        object
            .symbols
            .iter()
            .map(|symbol| symbol.name)
            .filter(|name| is_long(name)),
    );
    lay_out(&object, &strings)
}

/// Whether a name does not fit into its field.
fn is_long(name: &[u8]) -> bool {
    name.len() > 8
}

fn add<'a>(
    object: &mut Object<'a>,
    new: &[NewSection<'_>],
    names: &'a [Vec<u8>],
) -> Result<(), Malformed> {
    for (index, (section, name)) in new.iter().zip(names).enumerate() {
        let size = u32::try_from(section.size).map_err(|_| TOO_LARGE)?;
        // Addresses have no meaning in objects. llvm-objcopy continues after that of the last
        // section.
        let address = object
            .sections
            .last()
            .map_or(0, |last| last.address.wrapping_add(last.virtual_size));
        object.sections.push(Section {
            name,
            virtual_size: size,
            address,
            raw_size: size,
            characteristics: LINKER_REMOVES,
            body: read::Body::New(index),
            checksum: None,
            relocations: read::Relocations::default(),
        });
    }
    Ok(())
}

/// The name field of a section: a short name itself, or the offset of a long one.
fn name_field(name: &[u8], offset: u64) -> Result<[u8; 8], Malformed> {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut field = [0; 8];
    let mut put = |bytes: &[u8]| {
        field
            .iter_mut()
            .zip(bytes)
            .for_each(|(to, from)| *to = *from)
    };
    if !is_long(name) {
        put(name);
    } else if offset <= 9_999_999 {
        put(format!("/{offset}").as_bytes());
    } else if offset < 1 << 36 {
        let digits = (0..6)
            .rev()
            .filter_map(|place| DIGITS.get((offset >> (6 * place) & 63) as usize).copied());
        put(&[b'/', b'/'].into_iter().chain(digits).collect::<Vec<u8>>());
    } else {
        return Err(TOO_LARGE);
    }
    Ok(field)
}

/// Assigns an offset to every section and lists the parts to write.
fn lay_out(object: &Object<'_>, strings: &Strings<'_>) -> Result<Vec<Part>, Malformed> {
    let big = object.sections.len() > MOST_SECTIONS;
    let head_size: u64 = if big { 56 } else { 20 };
    let mut end = head_size + SECTION_SIZE * object.sections.len() as u64;
    let mut headers = Vec::new();
    for section in &object.sections {
        let count = section.relocations.count;
        let many = count >= 0xffff;
        let raw_at = if section.raw_size > 0 { end } else { 0 };
        end += u64::from(section.raw_size);
        let relocations_at = if count > 0 { end } else { 0 };
        end += RELOCATION_SIZE * (u64::from(count) + u64::from(many));
        u32::try_from(end).map_err(|_| TOO_LARGE)?;
        headers.extend(name_field(section.name, strings.offset(section.name))?);
        let characteristics = section.characteristics | if many { MORE_RELOCATIONS } else { 0 };
        let fields = [
            section.virtual_size,
            section.address,
            section.raw_size,
            raw_at as u32,
            relocations_at as u32,
            0,
        ];
        fields
            .iter()
            .for_each(|field| headers.extend(field.to_le_bytes()));
        // The largest number that fits, and no line numbers.
        headers.extend((count.min(0xffff) as u16).to_le_bytes());
        headers.extend([0, 0]);
        headers.extend(characteristics.to_le_bytes());
    }
    let table_at = u32::try_from(end).map_err(|_| TOO_LARGE)?;
    let symbols = symbols::table(object, strings, big)?;
    let mut out = PartList::default();
    out.bytes(head(object, big, table_at, symbols.count)?);
    out.bytes(headers);
    for section in &object.sections {
        write_section(object, section, &mut out)?;
    }
    let size = u32::try_from(strings.size()).map_err(|_| TOO_LARGE)?;
    out.bytes(symbols.bytes);
    out.bytes(strings.bytes(&size.to_le_bytes()));
    Ok(out.parts)
}

fn head(object: &Object<'_>, big: bool, table_at: u32, symbols: u32) -> Result<Vec<u8>, Malformed> {
    let mut head = Vec::new();
    let count = object.sections.len() as u32;
    if big {
        head.extend([0, 0, 0xff, 0xff, 2, 0]);
        head.extend(object.machine.to_le_bytes());
        head.extend(object.time.to_le_bytes());
        head.extend(BIG_CLASS);
        head.extend([0; 16]);
        head.extend(count.to_le_bytes());
        head.extend(table_at.to_le_bytes());
        head.extend(symbols.to_le_bytes());
    } else {
        head.extend(object.machine.to_le_bytes());
        head.extend((count as u16).to_le_bytes());
        head.extend(object.time.to_le_bytes());
        head.extend(table_at.to_le_bytes());
        head.extend(symbols.to_le_bytes());
        // No optional header.
        head.extend([0, 0]);
        head.extend(object.characteristics.to_le_bytes());
    }
    Ok(head)
}

fn write_section(
    object: &Object<'_>,
    section: &Section<'_>,
    out: &mut PartList,
) -> Result<(), Malformed> {
    let size = u64::from(section.raw_size);
    match &section.body {
        read::Body::Lent(at) => out.old(*at..*at + size),
        read::Body::Made(bytes) => out.bytes(bytes.clone()),
        read::Body::New(index) => out.contents(*index, size),
        // The section had no bytes in the file but gets some here.
        read::Body::None => out.pad_to(out.size + size),
    }
    let relocations = &section.relocations;
    if relocations.count >= 0xffff {
        let mut first = (relocations.count + 1).to_le_bytes().to_vec();
        first.resize(RELOCATION_SIZE as usize, 0);
        out.bytes(first);
    }
    match symbols::relocations(object, relocations)? {
        Some(bytes) => out.bytes(bytes),
        None if relocations.count > 0 => {
            out.old(relocations.at..relocations.at + RELOCATION_SIZE * u64::from(relocations.count))
        }
        None => {}
    }
    Ok(())
}
