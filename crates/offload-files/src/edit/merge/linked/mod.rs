//! Compares the host halves of two programs or shared libraries. Images of different sizes move
//! everything after them, and so change addresses and distances in the host's code and data. Each
//! different byte must therefore be part of an address or distance: `in_code` and `compare_aarch64`
//! know where processors encode distances, and `in_data` knows where compilers place pointers. A
//! value with the same target in both programs (`Moves`) counts as equal. `layout` finds these
//! targets, and compares the dynamic loader's data.

mod layout;

use std::collections::HashSet;

use anyhow::Result;
use object::elf;

use super::{Difference, Differences, Names, ParsedHost, place_names};
use layout::{Kind, Moves, Stretch, section_name};
use offload_formats::elf::raw::Class;

/// Limit on reported differences of one stretch.
const MOST_OF_STRETCH: usize = 4;
/// Jump tables are at most this large: a distance counts from a base at most this far before it.
const LARGEST_TABLE: u64 = 1 << 16;
/// Sizes of the constant that may follow a distance in its instruction.
const CONSTANTS: [u64; 4] = [0, 1, 2, 4];

/// Two programs, and the moves between them.
struct Compared<'c, 'd> {
    moves: &'c Moves<'d>,
    machine: elf::Machine,
    class: Class,
    /// Whether they are linked for fixed addresses.
    is_fixed: bool,
    /// The ends of thread-local memory in both.
    tls_ends: Option<[u64; 2]>,
    /// The addresses in the first program that the dynamic loader fills in.
    filled: HashSet<u64>,
    names: Names<'d>,
}

/// Adds the differences of two programs or shared libraries.
///
/// # Errors
/// The relocations are damaged.
pub(super) fn compare(
    one: &ParsedHost<'_>,
    other: &ParsedHost<'_>,
    found: &mut Differences,
) -> Result<()> {
    let moves = Moves::of(one, other, found);
    if found.count() > 0 {
        // Without the layout, the rest cannot be compared.
        return Ok(());
    }
    let filled = layout::relocations(&moves, one, other, found)?;
    let compared = Compared {
        moves: &moves,
        machine: one.file.header.machine,
        class: one.file.class,
        is_fixed: one.file.is_fixed(),
        tls_ends: one
            .file
            .tls_end
            .zip(other.file.tls_end)
            .map(|(one, other)| [one, other]),
        filled,
        names: Names::of(&one.file),
    };
    for stretch in &moves.stretches {
        match (stretch.kind, compared.machine) {
            (Kind::Code, elf::EM_AARCH64) => compare_aarch64(&compared, stretch, found),
            (Kind::Code | Kind::Data | Kind::Frames, _) => compared.bytes(stretch, found),
            (Kind::Table | Kind::Empty | Kind::Device, _) => {}
        }
    }
    layout::dynamic(&moves, one, other, found);
    layout::symbols(&moves, one, other, found);
    let entries = [one.file.header.entry, other.file.header.entry];
    if !matches!(entries, [0, 0]) && !moves.is_same(entries[0], entries[1]) {
        found.add(Difference::of_file("the entry points differ".to_owned()));
    }
    Ok(())
}

impl Compared<'_, '_> {
    /// Compares the bytes of a stretch.
    fn bytes(&self, stretch: &Stretch<'_>, found: &mut Differences) {
        let [one, other] = stretch.bytes;
        // Everything before this offset is explained or reported.
        let mut done = 0;
        let mut reported = 0;
        while let Some(at) = next_difference(one, other, done) {
            let explained = match (stretch.kind, self.machine) {
                (Kind::Code, elf::EM_X86_64) => in_code(self, stretch, at, done),
                (Kind::Code, _) => None,
                _ => in_data(self, stretch, at, done),
            };
            done = explained.unwrap_or_else(|| {
                self.add(stretch, at, found);
                reported += 1;
                at + 16
            });
            if reported == MOST_OF_STRETCH {
                return;
            }
        }
    }

    /// Adds a difference at an offset of a stretch.
    fn add(&self, stretch: &Stretch<'_>, at: usize, found: &mut Differences) {
        let [one, other] = stretch.bytes;
        let remedy = if stretch.kind == Kind::Data {
            place_names::remedy_at(one, at, other, at)
        } else {
            None
        };
        let is_known = matches!(self.machine, elf::EM_X86_64 | elf::EM_AARCH64);
        let what = match stretch.kind {
            Kind::Code if !is_known => {
                "the code differs; moved addresses are recognized only in x86-64 and AArch64 code"
            }
            Kind::Code => "the code differs",
            _ if remedy.is_some() => "names differ",
            _ => "the data differs",
        };
        let address = stretch.one.wrapping_add(at as u64);
        let symbol = self
            .names
            .at(stretch.section, address)
            .or(Some((String::new(), at as u64)));
        found.add(Difference {
            section: section_name(stretch),
            symbol,
            what: what.to_owned(),
            remedy,
        });
    }

    /// The numbers of `width` bytes (4 or 8) at an offset of both programs.
    fn numbers(&self, stretch: &Stretch<'_>, at: usize, width: usize) -> Option<[u64; 2]> {
        let number = |bytes: &[u8]| self.class.number(bytes.get(at..)?, width);
        let [one, other] = stretch.bytes;
        Some([number(one)?, number(other)?])
    }
}

/// The first offset at or after `from` at which two slices of one length differ.
fn next_difference(one: &[u8], other: &[u8], from: usize) -> Option<usize> {
    const CHUNK: usize = 256;
    let (one, other) = (one.get(from..)?, other.get(from..)?);
    let mut chunks = one.chunks(CHUNK).zip(other.chunks(CHUNK));
    let chunk = chunks.position(|(one, other)| one != other)? * CHUNK;
    let within = one
        .get(chunk..)?
        .iter()
        .zip(other.get(chunk..)?)
        .position(|(one, other)| one != other)?;
    Some(from + chunk + within)
}

/// A 32-bit distance, sign-extended to 64 bits.
fn distance(number: u64) -> u64 {
    i64::from(number as u32 as i32) as u64
}

/// The end of the field that explains the difference at `at` in data: a pointer, or a 32-bit
/// distance as in jump and unwind tables. Bytes before `done` belong to another field.
fn in_data(
    compared: &Compared<'_, '_>,
    stretch: &Stretch<'_>,
    at: usize,
    done: usize,
) -> Option<usize> {
    let word = compared.class.address_size();
    let pointer = start_of(stretch, at, word).filter(|start| *start >= done);
    if let Some(start) = pointer.filter(|start| is_pointer(compared, stretch, *start)) {
        return Some(start + word);
    }
    let is_distance = |start: &usize| *start >= done && leads_to_same(compared, stretch, *start);
    let aligned = start_of(stretch, at, 4).filter(is_distance);
    let anywhere = || {
        (at.saturating_sub(3)..=at)
            .rev()
            .filter(|_| stretch.kind == Kind::Frames)
            .find(is_distance)
    };
    aligned.or_else(anywhere).map(|start| start + 4)
}

/// The start of the aligned field of `width` bytes that contains `at`; `None` if its alignment
/// differs between the programs.
fn start_of(stretch: &Stretch<'_>, at: usize, width: usize) -> Option<usize> {
    let within = |address: u64| (address.wrapping_add(at as u64) % width as u64) as usize;
    let back = within(stretch.one);
    if back == within(stretch.other) {
        at.checked_sub(back)
    } else {
        None
    }
}

/// Whether a word is a pointer with the same target in both programs. In a position-independent
/// program it needs a relocation, except in linkage tables (`.got*`), whose addresses the loader
/// knows from its own table.
fn is_pointer(compared: &Compared<'_, '_>, stretch: &Stretch<'_>, start: usize) -> bool {
    let address = stretch.one.wrapping_add(start as u64);
    let may_be = compared.is_fixed
        || stretch.name.starts_with(b".got")
        || compared.filled.contains(&address);
    let numbers = compared.numbers(stretch, start, compared.class.address_size());
    may_be && numbers.is_some_and(|[one, other]| compared.moves.is_same(one, other))
}

/// Whether a distance has the same target in both programs. It counts from its own location or from
/// the start of its table. An unwind table starts with its section, any other table at an earlier
/// offset in the same stretch, which has moved by the same distance.
fn leads_to_same(compared: &Compared<'_, '_>, stretch: &Stretch<'_>, start: usize) -> bool {
    let Some([one, other]) = compared.numbers(stretch, start, 4) else {
        return false;
    };
    let [one, other] = [one, other].map(distance);
    let place = stretch.one.wrapping_add(start as u64);
    let moved = stretch.other.wrapping_sub(stretch.one);
    if stretch.kind == Kind::Frames {
        let is_same = |base: u64| {
            let (first, second) = (
                base.wrapping_add(one),
                base.wrapping_add(moved).wrapping_add(other),
            );
            compared.moves.moved(first) == Some(second)
        };
        return is_same(place) || is_same(stretch.one);
    }
    let lowest = place.saturating_sub(LARGEST_TABLE).max(stretch.one);
    let target = |base: u64| base.checked_add_signed(one as i64);
    let shift = moved.wrapping_add(other.wrapping_sub(one));
    target(place).is_some_and(|last| {
        compared
            .moves
            .reaches(target(lowest).unwrap_or(0).min(last), last, shift)
    })
}

/// The end of the field that explains the difference at `at` in x86-64 code: a 32-bit distance from
/// the end of an instruction, or an address in a program linked for fixed addresses. Instructions
/// are not decoded; the bytes before a field show whether it can be a distance. Bytes before `done`
/// belong to another field.
fn in_code(
    compared: &Compared<'_, '_>,
    stretch: &Stretch<'_>,
    at: usize,
    done: usize,
) -> Option<usize> {
    // The first bytes of the field may be equal.
    let starts = |width: usize| (at.saturating_sub(width - 1).max(done)..=at).rev();
    let is_distance = |start: &usize| {
        has_distance(stretch.bytes[0], *start) && jumps_to_same(compared, stretch, *start)
    };
    if let Some(start) = starts(4).find(is_distance) {
        return Some(start + 4);
    }
    // GNU ld encodes a missing weak thread-local variable like all others, as an offset from the
    // end of thread-local memory, as if the variable were at address 0. No code uses the result.
    let is_no_variable = |start: &usize| {
        let numbers = compared.numbers(stretch, *start, 4).zip(compared.tls_ends);
        numbers.is_some_and(|([one, other], [end, other_end])| {
            distance(one) == end.wrapping_neg() && distance(other) == other_end.wrapping_neg()
        })
    };
    if let Some(start) = starts(4).find(is_no_variable) {
        return Some(start + 4);
    }
    if !compared.is_fixed {
        return None;
    }
    let is_address = |start: usize, width: usize| {
        compared
            .numbers(stretch, start, width)
            .is_some_and(|[one, other]| compared.moves.is_same(one, other))
    };
    let found = [4, 8].into_iter().find_map(|width| {
        Some((
            starts(width).find(|start| is_address(*start, width))?,
            width,
        ))
    });
    found.map(|(start, width)| start + width)
}

/// Whether the bytes before `start` belong to an instruction with a distance there: a jump, a call,
/// or an operand relative to the instruction pointer (Intel's manual, volume 2, 2.2.1.6).
fn has_distance(code: &[u8], start: usize) -> bool {
    let before = |back: usize| start.checked_sub(back).and_then(|at| code.get(at)).copied();
    match before(1) {
        // call, jmp
        Some(0xe8 | 0xe9) => true,
        // Conditional jumps, and the start of a transaction (xbegin).
        Some(0x80..=0x8f) if before(2) == Some(0x0f) => true,
        Some(0xf8) if before(2) == Some(0xc7) => true,
        // ModRM: mod 00, rm 101.
        Some(modrm) => modrm & 0xc7 == 0x05,
        None => false,
    }
}

fn jumps_to_same(compared: &Compared<'_, '_>, stretch: &Stretch<'_>, start: usize) -> bool {
    let Some([one, other]) = compared.numbers(stretch, start, 4) else {
        return false;
    };
    let target = |base: u64, number: u64, constant: u64| {
        base.wrapping_add(start as u64 + 4 + constant)
            .wrapping_add(distance(number))
    };
    CONSTANTS.iter().any(|constant| {
        compared.moves.is_same(
            target(stretch.one, one, *constant),
            target(stretch.other, other, *constant),
        )
    })
}

// Compares AArch64 code: instructions with distances, and pairs of instructions that combine the
// address of a page and an offset in it. Every instruction has 32 bits, so the meaning of each
// different bit is known exactly.

/// For each register, how many of its last pages are tried. The code is not executed, so another
/// path may have set the register in between.
const PAGES: usize = 8;

/// An `adrp`: the pages that it loads into its register in both programs, and whether their
/// difference is explained.
#[derive(Debug, Clone, Copy)]
struct Page {
    at: usize,
    pages: [u64; 2],
    is_explained: bool,
}

/// Compares the code of a stretch.
fn compare_aarch64(compared: &Compared<'_, '_>, stretch: &Stretch<'_>, found: &mut Differences) {
    let [one, other] = stretch.bytes;
    if next_difference(one, other, 0).is_none() {
        return;
    }
    let mut recent: [Vec<Page>; 32] = Default::default();
    let mut unexplained: Vec<usize> = Vec::new();
    let mut done = 0;
    for at in (0..one.len()).step_by(4) {
        let Some([first, second]) = compared
            .numbers(stretch, at, 4)
            .map(|both| both.map(|word| word as u32))
        else {
            // The rest is shorter than an instruction.
            if next_difference(one, other, at).is_some() {
                unexplained.push(at);
            }
            break;
        };
        if let Some(pages) = pages(stretch, at, [first, second]) {
            let of_register = &mut recent[(first & 31) as usize];
            if of_register.len() == PAGES {
                let oldest = of_register.remove(0);
                unexplained.extend((!oldest.is_explained).then_some(oldest.at));
            }
            of_register.push(Page {
                at,
                pages,
                is_explained: first == second,
            });
            continue;
        }
        let of_pair = in_page([first, second]).is_some_and(|(register, places)| {
            let pages = recent[register].iter_mut().rev();
            let mut fitting = pages.filter(|page| {
                compared
                    .moves
                    .is_same(page.pages[0] + places[0], page.pages[1] + places[1])
            });
            fitting
                .next()
                .map(|page| page.is_explained = true)
                .is_some()
        });
        if first == second || of_pair || at < done {
            continue;
        }
        let by_distance = relative([first, second]).is_some_and(|[one, other]| {
            let place = at as u64;
            compared.moves.is_same(
                stretch.one.wrapping_add(place).wrapping_add(one),
                stretch.other.wrapping_add(place).wrapping_add(other),
            )
        });
        if !by_distance {
            // Code may contain jump tables and constants.
            match in_data(compared, stretch, at, done) {
                Some(end) => done = end,
                None => unexplained.push(at),
            }
        }
    }
    unexplained.extend(
        recent
            .iter()
            .flatten()
            .filter(|page| !page.is_explained)
            .map(|page| page.at),
    );
    unexplained.sort_unstable();
    for at in unexplained.into_iter().take(MOST_OF_STRETCH) {
        compared.add(stretch, at, found);
    }
}

/// The pages that an `adrp` loads into the same register in both programs.
fn pages(stretch: &Stretch<'_>, at: usize, words: [u32; 2]) -> Option<[u64; 2]> {
    const ADRP: u32 = 0x9000_0000;
    let [one, other] = words;
    let is_adrp = |word: u32| word & 0x9f00_0000 == ADRP;
    if !is_adrp(one) || !is_adrp(other) || one & 31 != other & 31 {
        return None;
    }
    let page = |base: u64, word: u32| {
        (base.wrapping_add(at as u64) & !0xfff)
            .wrapping_add(signed((word >> 5 & 0x7_ffff) << 2 | word >> 29 & 3, 21) << 12)
    };
    Some([page(stretch.one, one), page(stretch.other, other)])
}

/// The register and the page offsets of an addition, load or store, if the instructions differ only
/// in the offset.
fn in_page(words: [u32; 2]) -> Option<(usize, [u64; 2])> {
    const PLACE: u32 = 0xfff << 10;
    let [one, other] = words;
    if one & !PLACE != other & !PLACE {
        return None;
    }
    let scale = if one & 0xffc0_0000 == 0x9100_0000 {
        // add, 64 bits, not shifted.
        0
    } else if one & 0x3b00_0000 == 0x3900_0000 {
        // Loads and stores with an unsigned offset, in units of the access size; a separate bit
        // marks vector accesses of 16 bytes.
        let (is_vector, opc) = (one >> 26 & 1 == 1, one >> 22 & 3);
        if is_vector && opc & 2 == 2 {
            4
        } else {
            one >> 30
        }
    } else {
        return None;
    };
    let place = |word: u32| u64::from(word >> 10 & 0xfff) << scale;
    Some(((one >> 5 & 31) as usize, [place(one), place(other)]))
}

/// The distances of the same instruction in both programs, in bytes.
fn relative(words: [u32; 2]) -> Option<[u64; 2]> {
    let [one, other] = words;
    // Mask and value that identify the instruction, and its distance field: the lowest bit, the
    // number of bits, the shift.
    const FORMS: [(u32, u32, u32, u32, u32); 5] = [
        // b, bl
        (0x7c00_0000, 0x1400_0000, 0, 26, 2),
        // b.cond, bc.cond
        (0xff00_0000, 0x5400_0000, 5, 19, 2),
        // cbz, cbnz
        (0x7e00_0000, 0x3400_0000, 5, 19, 2),
        // tbz, tbnz
        (0x7e00_0000, 0x3600_0000, 5, 14, 2),
        // Loads relative to the instruction.
        (0x3b00_0000, 0x1800_0000, 5, 19, 2),
    ];
    for (mask, value, low, bits, shift) in FORMS {
        let field = ((1 << bits) - 1) << low;
        if one & mask == value {
            let distance = |word: u32| signed((word & field) >> low, bits) << shift;
            return (one & !field == other & !field).then(|| [distance(one), distance(other)]);
        }
    }
    // adr: the two lowest bits are separate.
    const FIELD: u32 = 0x60ff_ffe0;
    let distance = |word: u32| signed((word >> 5 & 0x7_ffff) << 2 | word >> 29 & 3, 21);
    (one & 0x9f00_0000 == 0x1000_0000 && one & !FIELD == other & !FIELD)
        .then(|| [distance(one), distance(other)])
}

/// Sign-extends a number of `bits` bits to 64 bits.
fn signed(number: u32, bits: u32) -> u64 {
    let unused = 64 - bits;
    ((u64::from(number) << unused) as i64 >> unused) as u64
}
