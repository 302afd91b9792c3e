//! Names of OpenMP code that do not depend on the location of the source file.
//!
//! clang names each target region by the file-system device number and the inode number of its
//! source file, as in `__omp_offloading_fe00_9948e5_main_l3`. So the same source in another
//! checkout has other device code. [`Uses`] collects these IDs from the names of all translation
//! units of a link, and [`StableNames`] gives each a new one: device number 0, which no file has,
//! and a short number made from the names themselves. [`StableNames::replaced`] puts the new IDs
//! into a text.
//!
//! A file-local `declare target` variable has the inode number alone in its name, as in
//! `x_9948e5_decl_tgt_ref_ptr`.
//!
//! Source: `getTargetEntryUniqueInfo` and `getTargetRegionEntryFnName` in LLVM's
//! `OMPIRBuilder.cpp`, and `getAddrOfDeclareTargetVar` there.
//!
//! ```
//! use offload_formats::stable_names::{StableNames, Uses};
//!
//! let name = b"__omp_offloading_fe00_9948e5_main_l3";
//! let mut uses = Uses::default();
//! uses.add(name);
//! let names = StableNames::choose(&uses, &Default::default());
//! let new = names.replaced(name).ok_or("no ID")?;
//! assert!(new.bytes.starts_with(b"__omp_offloading_0_") && new.bytes.ends_with(b"_main_l3"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;
use std::sync::LazyLock;

use md5::{Digest, Md5};
use memchr::memmem::{self, Finder};

use crate::kernels::OPENMP_PREFIX;

/// The end of the names of pointers to file-local `declare target` variables.
const TARGET_REFERENCE: &[u8] = b"_decl_tgt_ref_ptr";
/// The device number of stable IDs.
const STABLE_DEVICE: u64 = 0;

/// The numbers that identify a source file in a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId {
    /// The device number. Names of `declare target` variables do not have it.
    pub device: Option<u64>,
    /// The inode number.
    pub inode: u64,
}

impl FileId {
    /// Reads an ID as in names. `None` for other text.
    pub fn parse(text: &str) -> Option<FileId> {
        let (device, inode) = match text.split_once('_') {
            Some((device, inode)) => (Some(number(device.as_bytes())?), inode),
            None => (None, text),
        };
        Some(FileId {
            device,
            inode: number(inode.as_bytes())?,
        })
    }

    /// The length of the ID in names.
    fn text_len(self) -> usize {
        let len = |number: u64| number.checked_ilog2().map_or(1, |log| log as usize / 4 + 1);
        self.device.map_or(0, |device| len(device) + 1) + len(self.inode)
    }
}

/// As in names: hexadecimal numbers, joined by `_`.
impl fmt::Display for FileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(device) = self.device {
            write!(f, "{device:x}_")?;
        }
        write!(f, "{:x}", self.inode)
    }
}

/// The IDs in `text` that depend on the location of a source file, and their positions, in order
/// and disjoint. The text can be one name, or many of them with or without zeros between them.
pub fn file_ids(text: &[u8]) -> impl Iterator<Item = (Range<usize>, FileId)> {
    // Building a finder takes longer than searching a name.
    static REGIONS: LazyLock<Finder<'_>> = LazyLock::new(|| Finder::new(OPENMP_PREFIX));
    static VARIABLES: LazyLock<Finder<'_>> = LazyLock::new(|| Finder::new(TARGET_REFERENCE));
    let regions = REGIONS.find_iter(text);
    let mut regions = regions
        .filter_map(|at| region_id(text, at + OPENMP_PREFIX.len()))
        .peekable();
    let variables = VARIABLES.find_iter(text);
    let mut variables = variables.filter_map(|at| variable_id(text, at)).peekable();
    let in_order = std::iter::from_fn(move || match (regions.peek(), variables.peek()) {
        (Some((region, _)), Some((variable, _))) if variable.start < region.start => {
            variables.next()
        }
        (None, _) => variables.next(),
        _ => regions.next(),
    });
    let mut end = 0;
    in_order.filter(move |(range, _)| {
        let is_next = range.start >= end;
        end = end.max(range.end);
        is_next
    })
}

/// `text` without the IDs that depend on the location of a source file.
pub fn without_file_ids(text: &[u8]) -> Vec<u8> {
    let mut left = text.to_vec();
    let ranges: Vec<Range<usize>> = file_ids(text).map(|(range, _)| range).collect();
    for range in ranges.into_iter().rev() {
        left.drain(range);
    }
    left
}

/// Whether `text` has an ID that depends on the location of a source file.
pub fn has_file_id(text: &[u8]) -> bool {
    file_ids(text).next().is_some()
}

/// The ID at `start`, behind the prefix. Older releases have a second `_` before it.
fn region_id(text: &[u8], start: usize) -> Option<(Range<usize>, FileId)> {
    let start = start + usize::from(text.get(start) == Some(&b'_'));
    let (device, end) = number_at(text, start)?;
    let (inode, after) = number_at(text, end + 1)?;
    let joined = text.get(end) == Some(&b'_') && text.get(after) == Some(&b'_');
    let id = FileId {
        device: Some(device),
        inode,
    };
    (joined && device != STABLE_DEVICE).then_some((start..after, id))
}

/// The ID that ends at `end`, before [`TARGET_REFERENCE`].
fn variable_id(text: &[u8], end: usize) -> Option<(Range<usize>, FileId)> {
    let before = text.get(..end)?;
    let start = before
        .iter()
        .rposition(|byte| digit(*byte).is_none())
        .filter(|at| before.get(*at) == Some(&b'_'))?
        + 1;
    let id = FileId {
        device: None,
        inode: number(before.get(start..)?)?,
    };
    Some((start..end, id))
}

/// The value of a digit of `%x`, the format in which clang writes these numbers.
fn digit(byte: u8) -> Option<u64> {
    match byte {
        b'0'..=b'9' => Some((byte - b'0').into()),
        b'a'..=b'f' => Some((byte - b'a' + 10).into()),
        _ => None,
    }
}

/// The hexadecimal number at `start`, and its end. `None` without digits, with leading zeros, which
/// clang does not write, or with more than 64 bits.
fn number_at(text: &[u8], start: usize) -> Option<(u64, usize)> {
    let digits = text.get(start..)?;
    let (mut number, mut len) = (0u64, 0);
    for value in digits.iter().map_while(|byte| digit(*byte)) {
        if len == 16 || (len > 0 && number == 0) {
            return None;
        }
        (number, len) = (number << 4 | value, len + 1);
    }
    (len > 0).then_some((number, start + len))
}

/// The value of hexadecimal digits, under the conditions of [`number_at`].
fn number(digits: &[u8]) -> Option<u64> {
    let (number, end) = number_at(digits, 0)?;
    (end == digits.len()).then_some(number)
}

/// The IDs in the names of a link.
#[derive(Debug, Default)]
pub struct Uses {
    ids: BTreeMap<FileId, Use>,
}

/// The use of an ID.
#[derive(Debug)]
struct Use {
    /// The ID's first name in byte order, without IDs and the line of the region. It does not
    /// depend on the location of a file, and few edits change it.
    name: Vec<u8>,
    /// The number of IDs that were seen earlier.
    order: usize,
}

/// `name` without the line of a region at its end, as in `_l3` or `_l3_1`.
fn without_line(name: &[u8]) -> &[u8] {
    let line = memmem::rfind(name, b"_l").filter(|at| {
        let digits = name.get(at + 2..).unwrap_or_default();
        digits.first().is_some_and(u8::is_ascii_digit)
            && digits
                .iter()
                .all(|byte| byte.is_ascii_digit() || *byte == b'_')
    });
    line.and_then(|at| name.get(..at)).unwrap_or(name)
}

impl Uses {
    /// Adds the IDs in `name`. The order of calls must not depend on the locations of files,
    /// because it decides between two files with kernels of the same names.
    pub fn add(&mut self, name: &[u8]) {
        let found: Vec<(Range<usize>, FileId)> = file_ids(name).collect();
        if found.is_empty() {
            return;
        }
        let mut rest = name.to_vec();
        for (range, _) in found.iter().rev() {
            rest.drain(range.clone());
        }
        rest.truncate(without_line(&rest).len());
        for (_, id) in found {
            let order = self.ids.len();
            let known = self.ids.entry(id).or_insert_with(|| Use {
                name: rest.clone(),
                order,
            });
            if rest < known.name {
                known.name.clone_from(&rest);
            }
        }
    }

    /// The IDs.
    pub fn ids(&self) -> impl Iterator<Item = FileId> {
        self.ids.keys().copied()
    }

    /// Whether no name has an ID.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }
}

/// A stable ID for each file ID.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct StableNames {
    ids: BTreeMap<FileId, String>,
}

impl StableNames {
    /// Chooses stable IDs for the IDs in `uses`, without those of `fixed`, which keep their text.
    ///
    /// The new IDs are distinct. They depend on the names in `uses` and on the order of IDs, but
    /// not on the IDs. Each is at most as long as the old one, so that it can replace it in a
    /// finished program. An ID that is too short for that keeps its text. This can only happen if
    /// the inode number is smaller than 16 times the number of IDs in the link.
    pub fn choose(uses: &Uses, fixed: &BTreeSet<FileId>) -> Self {
        let count = uses.ids.len() as u64;
        // At most one of 16 numbers is used, so most IDs do not depend on other files.
        let digits = (1..16).find(|digits| count.saturating_mul(16) <= 1 << (4 * digits));
        let digits = digits.unwrap_or(16) as usize;
        let limit = 1u64.checked_shl(4 * digits as u32).unwrap_or(u64::MAX);
        let mut order: Vec<(u64, &Use, FileId)> = uses
            .ids
            .iter()
            .map(|(id, used)| (hash(&used.name), used, *id))
            .collect();
        order.sort_by_key(|(hash, used, _)| (*hash, &used.name, used.order));
        let (mut taken, mut ids) = (BTreeSet::new(), BTreeMap::new());
        // Names of variables do not show whether their ID is stable.
        let is_old = |number, id: FileId| {
            let old = FileId {
                device: None,
                inode: number,
            };
            id.device.is_none() && uses.ids.contains_key(&old)
        };
        for (hash, _, id) in order {
            let mut number = hash % limit;
            while is_old(number, id) || !taken.insert(number) {
                number = (number + 1) % limit;
            }
            let new = match id.device {
                Some(_) => format!("{STABLE_DEVICE}_{number:0digits$x}"),
                None => format!("{number:0digits$x}"),
            };
            if new.len() <= id.text_len() && !fixed.contains(&id) {
                ids.insert(id, new);
            }
        }
        StableNames { ids }
    }

    /// Whether no ID is replaced.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// The IDs, each with its stable one.
    pub fn iter(&self) -> impl Iterator<Item = (FileId, &str)> {
        self.ids.iter().map(|(id, new)| (*id, new.as_str()))
    }

    /// The stable ID of `id`, if it has one.
    pub fn get(&self, id: FileId) -> Option<&str> {
        self.ids.get(&id).map(String::as_str)
    }

    /// Replaces the IDs in a source location of the OpenMP runtime, such as
    /// `;k.cpp;__omp_offloading_fe00_9948e5_main_l3_debug__;4;1;;`. The length stays the same,
    /// because data and types contain it. Returns false if `text` is not a location or has no ID to
    /// replace.
    pub fn replace_in_location(&self, text: &mut [u8]) -> bool {
        if !(text.starts_with(b";") && text.ends_with(b";;")) {
            return false;
        }
        let mut is_changed = false;
        let all: Vec<(Range<usize>, &str)> = self.replacements(text).collect();
        for (range, new) in all {
            let zeros = range.len().saturating_sub(new.len());
            let (before, number) = new.split_at(new.find('_').map_or(0, |at| at + 1));
            let padded = format!("{before}{}{number}", "0".repeat(zeros));
            if let Some(old) = text.get_mut(range).filter(|old| old.len() == padded.len()) {
                old.copy_from_slice(padded.as_bytes());
                is_changed = true;
            }
        }
        is_changed
    }

    /// The positions of the IDs in `text` that are replaced, each with its stable ID, in order.
    fn replacements(&self, text: &[u8]) -> impl Iterator<Item = (Range<usize>, &str)> {
        file_ids(text).filter_map(|(range, id)| Some((range, self.get(id)?)))
    }

    /// Whether `text` has an ID to replace.
    pub fn is_in(&self, text: &[u8]) -> bool {
        self.replacements(text).next().is_some()
    }

    /// `text` with stable IDs; `None` if it has no ID to replace.
    pub fn replaced(&self, text: &[u8]) -> Option<Replaced> {
        let (mut bytes, mut moves, mut done) = (Vec::new(), Vec::new(), 0);
        for (old, new) in self.replacements(text) {
            if moves.is_empty() {
                bytes.reserve_exact(text.len());
            }
            bytes.extend_from_slice(text.get(done..old.start)?);
            let start = bytes.len();
            bytes.extend_from_slice(new.as_bytes());
            done = old.end;
            moves.push(Move {
                old,
                new: start..bytes.len(),
            });
        }
        if moves.is_empty() {
            return None;
        }
        bytes.extend_from_slice(text.get(done..)?);
        Some(Replaced { bytes, moves })
    }

    /// Puts the stable IDs into the strings of `table`, each of which ends with a zero. A string
    /// keeps its offset, and ends earlier if its new ID is shorter. Only strings in ranges for
    /// which `may_change` is true change. Returns whether any did.
    pub fn replace_in_strings(
        &self,
        table: &mut [u8],
        may_change: &dyn Fn(Range<usize>) -> bool,
    ) -> bool {
        let all: Vec<(Range<usize>, &str)> = self.replacements(table).collect();
        let mut is_changed = false;
        // The last ID first, so that the positions of the others stay valid.
        for (id, new) in all.into_iter().rev() {
            let (before, rest) = table.split_at(id.start);
            let start = memchr::memrchr(0, before).map_or(0, |zero| zero + 1);
            let Some(len) = memchr::memchr(0, rest) else {
                continue;
            };
            let end = id.start + len;
            if new.len() <= id.len()
                && may_change(start..end)
                && let Some(rest) = table.get_mut(id.start..end)
            {
                rest.copy_within(id.len().., new.len());
                let (text, free) = rest.split_at_mut(rest.len() + new.len() - id.len());
                let (new_id, _) = text.split_at_mut(new.len());
                new_id.copy_from_slice(new.as_bytes());
                free.fill(0);
                is_changed = true;
            }
        }
        is_changed
    }
}

/// Names of the caller's choice: each ID with its replacement, which must be distinct and at most as
/// long as the ID.
impl FromIterator<(FileId, String)> for StableNames {
    fn from_iter<I: IntoIterator<Item = (FileId, String)>>(ids: I) -> Self {
        StableNames {
            ids: ids.into_iter().collect(),
        }
    }
}

/// 64 bits of a digest of `name`.
fn hash(name: &[u8]) -> u64 {
    let digest = Md5::digest(name);
    digest
        .iter()
        .take(8)
        .fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// A text with stable IDs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replaced {
    /// The new text.
    pub bytes: Vec<u8>,
    moves: Vec<Move>,
}

/// The positions of a replaced ID in the old and in the new text.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Move {
    old: Range<usize>,
    new: Range<usize>,
}

impl Replaced {
    /// Replaces `old` by `new`, which has the same length, everywhere.
    pub(crate) fn replace_same_length(&mut self, old: &[u8], new: &[u8]) {
        let found: Vec<usize> = memmem::find_iter(&self.bytes, old).collect();
        for at in found {
            if let Some(place) = self.bytes.get_mut(at..at + new.len()) {
                place.copy_from_slice(new);
            }
        }
    }

    /// The position in the new text of the old position `at`; `None` inside of a replaced ID.
    pub fn position(&self, at: usize) -> Option<usize> {
        let before = self.moves.partition_point(|moved| moved.old.end <= at);
        if self
            .moves
            .get(before)
            .is_some_and(|next| next.old.start < at)
        {
            return None;
        }
        match before
            .checked_sub(1)
            .and_then(|index| self.moves.get(index))
        {
            Some(last) => Some(last.new.end + (at - last.old.end)),
            None => Some(at),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(device: u64, inode: u64) -> FileId {
        FileId {
            device: Some(device),
            inode,
        }
    }

    #[test]
    fn ids_are_found_in_the_names_of_all_releases() {
        let find = |text: &str| {
            file_ids(text.as_bytes())
                .map(|(range, id)| (text[range].to_owned(), id))
                .collect::<Vec<_>>()
        };
        for (name, text, expected) in [
            (
                "__omp_offloading_fe00_9948e5_main_l3",
                "fe00_9948e5",
                id(0xfe00, 0x9948e5),
            ),
            (
                ".__omp_offloading_1e_2_main_l3.region_id",
                "1e_2",
                id(0x1e, 2),
            ),
            (
                "__omp_offloading_1e_2_main_l3_1_omp_outlined",
                "1e_2",
                id(0x1e, 2),
            ),
            // A variable's constructor, up to LLVM 16.
            (
                "__omp_offloading__fd00_ab_x_l5_ctor",
                "fd00_ab",
                id(0xfd00, 0xab),
            ),
            (
                "x_9948e5_decl_tgt_ref_ptr",
                "9948e5",
                FileId {
                    device: None,
                    inode: 0x9948e5,
                },
            ),
        ] {
            assert_eq!(find(name), [(text.to_owned(), expected)], "{name}");
        }
        for name in [
            "__omp_offloading_entry",
            "__omp_offloading_fe00_main_l3",
            "__omp_offloading_FE00_1_main_l3",
            "__omp_offloading_01_1_main_l3",
            "__omp_offloading_11112222333344445_1_main_l3",
            "x_decl_tgt_ref_ptr",
            "9948e5_decl_tgt_ref_ptr",
            // A stable name.
            "__omp_offloading_0_5_main_l3",
            "__omp_offloading_fe00_9948e5",
        ] {
            assert_eq!(find(name), [], "{name}");
        }
    }

    #[test]
    fn names_of_two_places_become_equal() {
        let link = |first: &str, second: &str| -> Vec<Vec<u8>> {
            let names: Vec<String> = [
                (first, "main_l3"),
                (first, "main_l9"),
                (second, "_Z3runv_l7"),
            ]
            .iter()
            .map(|(id, rest)| format!("__omp_offloading_{id}_{rest}"))
            .collect();
            let mut uses = Uses::default();
            names.iter().for_each(|name| uses.add(name.as_bytes()));
            let stable = StableNames::choose(&uses, &BTreeSet::new());
            let new = names.iter().map(|name| stable.replaced(name.as_bytes()));
            new.map(|new| new.unwrap().bytes).collect()
        };
        let one = link("fe00_9948e5", "fe00_9948e6");
        assert_eq!(one, link("2f_1b2", "fe00_2"));
        assert_eq!(one, link("fe00_9948e6", "fe00_9948e5"));
        assert_ne!(one[0], one[1]);
        assert_eq!(one[0].len(), "__omp_offloading_0_12_main_l3".len());
    }

    #[test]
    fn files_with_the_same_names_get_distinct_ids_in_the_order_of_the_link() {
        let mut uses = Uses::default();
        for inode in 1..=300 {
            uses.add(format!("__omp_offloading_fe00_{:x}_main_l3", 0x10000 - inode).as_bytes());
        }
        let stable = StableNames::choose(&uses, &BTreeSet::new());
        let in_order: Vec<&str> = (1..=300)
            .map(|inode| stable.get(id(0xfe00, 0x10000 - inode)).unwrap())
            .collect();
        assert_eq!(in_order.iter().collect::<BTreeSet<_>>().len(), 300);
        let number = |text: &str| u64::from_str_radix(&text[2..], 16).unwrap();
        assert_eq!((number(in_order[0]) + 1) % 0x10000, number(in_order[1]));
    }

    #[test]
    fn an_id_that_is_too_short_stays_the_same() {
        let mut uses = Uses::default();
        for inode in 0..17 {
            uses.add(format!("__omp_offloading_1_{inode:x}_f{inode}_l3").as_bytes());
        }
        let stable = StableNames::choose(&uses, &BTreeSet::new());
        assert_eq!(stable.get(id(1, 2)), None);
        assert!(stable.replaced(b"__omp_offloading_1_2_f2_l3").is_none());
        uses.add(b"__omp_offloading_fe00_2_main_l3");
        let fixed = BTreeSet::from([id(0xfe00, 2)]);
        assert!(StableNames::choose(&uses, &fixed).is_empty());
        assert!(!StableNames::choose(&uses, &BTreeSet::new()).is_empty());
    }

    #[test]
    fn ids_are_read_from_their_text() {
        for id in [
            id(0xfe00, 0x9948e5),
            FileId {
                device: None,
                inode: 1,
            },
        ] {
            assert_eq!(FileId::parse(&id.to_string()), Some(id));
        }
        for text in ["", "x", "1_", "1_2_3", "01_2"] {
            assert_eq!(FileId::parse(text), None, "{text}");
        }
    }

    #[test]
    fn an_id_does_not_depend_on_lines() {
        let of_line = |line: &str| {
            let mut uses = Uses::default();
            uses.add(format!("__omp_offloading_fe00_9948e5_main_l{line}").as_bytes());
            let stable = StableNames::choose(&uses, &BTreeSet::new());
            stable.get(id(0xfe00, 0x9948e5)).unwrap().to_owned()
        };
        assert_eq!(of_line("3"), of_line("40_1"));
        assert_eq!(without_line(b"_a_l7_l3"), b"_a_l7");
        assert_eq!(without_line(b"_main_l"), b"_main_l");
        assert_eq!(without_line(b"_all"), b"_all");
    }

    #[test]
    fn locations_keep_their_length() {
        let mut uses = Uses::default();
        uses.add(b"__omp_offloading_fe00_9948e5_main_l3");
        let stable = StableNames::choose(&uses, &BTreeSet::new());
        let mut text = *b";k.cpp;__omp_offloading_fe00_9948e5_main_l3_debug__;4;1;;";
        assert!(stable.replace_in_location(&mut text));
        assert!(text.starts_with(b";k.cpp;__omp_offloading_0_00000000"));
        let mut name = *b"__omp_offloading_fe00_9948e5_main_l3";
        assert!(!stable.replace_in_location(&mut name));
        assert!(!stable.replace_in_location(&mut b";k.cpp;main;4;1;;".to_vec()));
    }

    #[test]
    fn positions_move_with_the_text() {
        let text =
            b"a\0__omp_offloading_fe00_9948e5_main_l3\0b\0__omp_offloading_fe00_9948e5_main_l9\0c";
        let mut uses = Uses::default();
        uses.add(text);
        let new = StableNames::choose(&uses, &BTreeSet::new())
            .replaced(text)
            .unwrap();
        for (at, byte) in text.iter().enumerate() {
            if let Some(new_at) = new.position(at)
                && !byte.is_ascii_hexdigit()
            {
                assert_eq!(new.bytes[new_at], *byte, "{at}");
            }
        }
        assert_eq!(new.position(text.len()), Some(new.bytes.len()));
        assert_eq!(new.position(2 + OPENMP_PREFIX.len() + 1), None);
    }
}
