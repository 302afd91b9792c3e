//! Compares AArch64 code: instructions with distances, and pairs of instructions that combine the
//! address of a page and an offset in it. Every instruction has 32 bits, so the meaning of each
//! different bit is known exactly.

use super::moves::Stretch;
use super::{Compared, Differences, MOST_OF_STRETCH, in_data, next_difference};

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
pub(super) fn compare(compared: &Compared<'_, '_>, stretch: &Stretch<'_>, found: &mut Differences) {
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
