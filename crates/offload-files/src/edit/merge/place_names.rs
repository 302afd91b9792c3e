//! Recognizes names that contain the path or file id of a source file, or a hash of its compile
//! command. Host code and images share these names: OpenMP names kernels by the device and inode
//! number of their source; HIP and CUDA name file-local symbols by a hash of the file and the
//! command line. Two builds that differ only in such names come from one program, but were compiled
//! so that they cannot be merged.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use offload_formats::kernels::OPENMP_PREFIX;
use offload_formats::model::printable_name;

/// The change that makes the names match.
pub(super) type Remedy = &'static str;

/// For names of OpenMP kernels, which LLVM derives from the device and inode number of the source
/// file.
pub(super) const ONE_TREE: Remedy = "OpenMP names kernels by the device and inode number of their source file: compile every \
    build from the same source files, not from copies of them";
/// For names that clang derives from the compilation unit's id.
pub(super) const FIXED_CUID: Remedy = "these names contain the translation unit's id, which clang makes from the source's path and \
    the command line with its architectures: compile every build with the same `-cuid=TEXT`, another TEXT for each source file";
/// For names that nvcc derives from a file's path.
pub(super) const SAME_PATHS: Remedy = "nvcc derives these names from the source's path and the command line: compile every build \
    from the same path with the same options";

/// A form of names: the text before the variable part, and the form of that part.
struct Form {
    before: &'static str,
    part: Part,
    remedy: Remedy,
}

/// The part of a name that depends on a path or file.
#[derive(Clone, Copy)]
enum Part {
    /// Two hexadecimal numbers, each followed by `_`.
    DeviceAndInode,
    /// Letters and digits.
    Id,
    /// Hexadecimal digits, followed by this text.
    HexBefore(&'static str),
}

const FORMS: [Form; 10] = [
    Form {
        before: OPENMP_PREFIX,
        part: Part::DeviceAndInode,
        remedy: ONE_TREE,
    },
    Form {
        before: "_",
        part: Part::HexBefore("_decl_tgt_ref_ptr"),
        remedy: ONE_TREE,
    },
    Form {
        before: "__hip_cuid_",
        part: Part::Id,
        remedy: FIXED_CUID,
    },
    Form {
        before: "__hip_gpubin_handle_",
        part: Part::Id,
        remedy: FIXED_CUID,
    },
    Form {
        before: "__hip_fatbin_",
        part: Part::Id,
        remedy: FIXED_CUID,
    },
    Form {
        before: ".static.",
        part: Part::Id,
        remedy: FIXED_CUID,
    },
    Form {
        before: ".intern.",
        part: Part::Id,
        remedy: FIXED_CUID,
    },
    Form {
        before: "__static__",
        part: Part::Id,
        remedy: FIXED_CUID,
    },
    Form {
        before: "__intern__",
        part: Part::Id,
        remedy: FIXED_CUID,
    },
    Form {
        before: "_INTERNAL_",
        part: Part::Id,
        remedy: SAME_PATHS,
    },
];

impl Part {
    /// The length of the part at the start of `rest`; `None` if `rest` does not have this form.
    fn len(self, rest: &[u8]) -> Option<usize> {
        let hex = |bytes: &[u8]| {
            bytes
                .iter()
                .take_while(|byte| byte.is_ascii_hexdigit())
                .count()
        };
        match self {
            Part::DeviceAndInode => {
                let device = hex(rest);
                let after = rest.get(device..)?.strip_prefix(b"_")?;
                let inode = hex(after);
                (device > 0 && inode > 0 && after.get(inode) == Some(&b'_'))
                    .then_some(device + 1 + inode)
            }
            Part::Id => Some(
                rest.iter()
                    .take_while(|byte| byte.is_ascii_alphanumeric())
                    .count(),
            )
            .filter(|len| *len > 0),
            Part::HexBefore(word) => {
                let len = hex(rest);
                (len > 0 && rest.get(len..)?.starts_with(word.as_bytes())).then_some(len)
            }
        }
    }
}

/// `name` with its variable parts replaced by `*`, and the remedy that makes such names match;
/// `None` for a name without such a part.
pub(super) fn without_place(name: &[u8]) -> (Cow<'_, [u8]>, Option<Remedy>) {
    let mut out: Cow<'_, [u8]> = Cow::Borrowed(name);
    let mut remedy = None;
    for form in &FORMS {
        let mut at = 0;
        while let Some(found) =
            memchr::memmem::find(out.get(at..).unwrap_or_default(), form.before.as_bytes())
        {
            let start = at + found + form.before.len();
            at = start;
            let Some(len) = form.part.len(out.get(start..).unwrap_or_default()) else {
                continue;
            };
            out.to_mut().splice(start..start + len, *b"*");
            at = start + 1;
            remedy = remedy.or(Some(form.remedy));
        }
    }
    (out, remedy)
}

/// The remedy that makes the names `one` and `other` match, if they differ only in variable parts.
pub(super) fn remedy(one: &[u8], other: &[u8]) -> Option<Remedy> {
    let ((plain, first), (other_plain, second)) = (without_place(one), without_place(other));
    if one == other || plain != other_plain {
        None
    } else {
        first.or(second)
    }
}

/// Two names that differ only in variable parts.
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) one: String,
    pub(super) other: String,
    pub(super) remedy: Remedy,
}

/// The names that only one of the sets has, each with a counterpart in the other set that differs
/// only in variable parts.
pub(super) fn pairs(one: &BTreeSet<&[u8]>, other: &BTreeSet<&[u8]>) -> Vec<Pair> {
    let mut without: BTreeMap<Vec<u8>, &[u8]> = BTreeMap::new();
    for name in other.difference(one) {
        if let (plain, Some(_)) = without_place(name) {
            without.entry(plain.into_owned()).or_insert(name);
        }
    }
    let pair = |name: &&[u8]| {
        let (plain, remedy) = without_place(name);
        let other = without.get(plain.as_ref())?;
        Some(Pair {
            one: printable_name(name),
            other: printable_name(other),
            remedy: remedy?,
        })
    };
    one.difference(other).filter_map(pair).collect()
}

/// Limit on the length of names, for the search for their ends.
const LONGEST: usize = 4096;

/// The remedy for the names around two offsets, if they differ only in variable parts.
pub(super) fn remedy_at(one: &[u8], at: usize, other: &[u8], other_at: usize) -> Option<Remedy> {
    remedy(around(one, at)?, around(other, other_at)?)
}

/// The zero-terminated string that contains the byte at `at`.
fn around(bytes: &[u8], at: usize) -> Option<&[u8]> {
    let lowest = at.saturating_sub(LONGEST);
    let before = bytes.get(lowest..at)?;
    let start = memchr::memrchr(0, before).map_or(lowest, |zero| lowest + zero + 1);
    let after = bytes.get(at..bytes.len().min(at.saturating_add(LONGEST)))?;
    let end = at + memchr::memchr(0, after)?;
    bytes.get(start..end)
}

/// The remedy for the strings of two sections, if both have the same number of strings, which
/// differ only in variable parts.
pub(super) fn remedy_of_all(one: &[u8], other: &[u8]) -> Option<Remedy> {
    let mut found = None;
    let (mut first, mut second) = (one.split(|byte| *byte == 0), other.split(|byte| *byte == 0));
    loop {
        match (first.next(), second.next()) {
            (None, None) => return found,
            (Some(one), Some(other)) if one == other => {}
            (Some(one), Some(other)) => found = Some(remedy(one, other)?),
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_clang_22_differ_only_in_variable_parts() {
        for (one, other, expected) in [
            (
                "__omp_offloading_fe01_1a2b3c_main_l10",
                "__omp_offloading_fe01_99_main_l10",
                Some(ONE_TREE),
            ),
            (
                ".offloading.entry.__omp_offloading_1_2__Z3runi_l9",
                ".offloading.entry.__omp_offloading_1_3__Z3runi_l9",
                Some(ONE_TREE),
            ),
            (
                "__omp_offloading_fe01_1a2b3c_main_l10",
                "__omp_offloading_fe01_1a2b3c_main_l11",
                None,
            ),
            (
                "__omp_offloading_fe01_1a2b3c_main_l10",
                "__omp_offloading_fe01_77_other_l10",
                None,
            ),
            (
                "x_10303_decl_tgt_ref_ptr",
                "x_fe01_decl_tgt_ref_ptr",
                Some(ONE_TREE),
            ),
            (
                "__hip_cuid_72b87c161253813b",
                "__hip_cuid_bfa8ad16c8e3b056",
                Some(FIXED_CUID),
            ),
            (
                "_ZN12_GLOBAL__N_12k2EPi.intern.72b8",
                "_ZN12_GLOBAL__N_12k2EPi.intern.bfa8ad16",
                Some(FIXED_CUID),
            ),
            ("_ZL8stat_dev.static.72b8", "_ZL8stat_dew.static.72b8", None),
            (
                "_ZL1x__static__72b8",
                "_ZL1x__static__72b9",
                Some(FIXED_CUID),
            ),
            ("main", "main", None),
            ("main", "mein", None),
        ] {
            assert_eq!(
                remedy(one.as_bytes(), other.as_bytes()),
                expected,
                "{one} and {other}"
            );
        }
    }

    #[test]
    fn names_without_numbers_have_no_variable_part() {
        for name in [
            "__omp_offloading_",
            "__omp_offloading_xyz_1_a",
            "__omp_offloading_1_",
            "__omp_offloading__1_2_a",
            ".static.",
            "__hip_cuid_",
        ] {
            assert_eq!(
                without_place(name.as_bytes()),
                (Cow::Borrowed(name.as_bytes()), None),
                "{name}"
            );
        }
    }

    #[test]
    fn only_names_without_a_counterpart_are_paired() {
        let set = |names: &[&'static str]| {
            names
                .iter()
                .map(|name| name.as_bytes())
                .collect::<BTreeSet<_>>()
        };
        let one = set(&["a", "__hip_cuid_1", "__hip_cuid_2", "b"]);
        let other = set(&["a", "__hip_cuid_1", "__hip_cuid_3", "c"]);
        let found: Vec<_> = pairs(&one, &other)
            .into_iter()
            .map(|pair| (pair.one, pair.other))
            .collect();
        assert_eq!(
            found,
            [("__hip_cuid_2".to_owned(), "__hip_cuid_3".to_owned())]
        );
    }

    #[test]
    fn names_are_found_around_a_byte() {
        let one = b"a\0__omp_offloading_1_22_f_l1\0b\0";
        let other = b"a\0__omp_offloading_1_23_f_l1\0b\0";
        let at = one
            .iter()
            .zip(other)
            .position(|(one, other)| one != other)
            .unwrap_or_default();
        assert_eq!(remedy_at(one, at, other, at), Some(ONE_TREE));
        assert_eq!(remedy_of_all(one, other), Some(ONE_TREE));
        assert_eq!(
            remedy_of_all(one, b"a\0__omp_offloading_1_2_f_l1\0b\0"),
            Some(ONE_TREE)
        );
        assert_eq!(
            remedy_of_all(one, b"a\0__omp_offloading_1_2_f_l1\0c\0"),
            None
        );
        assert_eq!(remedy_of_all(one, b"a\0__omp_offloading_1_2_f_l1\0"), None);
        assert_eq!(remedy_at(b"\0abc\0", 2, b"\0adc\0", 2), None);
        assert_eq!(remedy_at(b"abc", 1, b"adc", 1), None);
        assert_eq!(remedy_at(b"abc", 7, b"adc", 1), None);
    }
}
