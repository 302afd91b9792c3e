//! Search for the translation units of device code in symbol names. NVIDIA's compiler puts the file
//! name into the names of symbols that are local to a unit: `_INTERNAL_9bf1d7ca_4_a_cu_7a7eb9d1`,
//! `_GLOBAL__N__57686b55_4_a_cu_45d778d9`, `__nv_static_25__45ddc4bb_4_b_cu_848acf13_…`. After the
//! prefix, such names have eight hexadecimal digits, the length of the file name, and the name, in
//! which `_` replaces all characters except letters and digits. Other compilers have symbols for
//! files.

use std::collections::BTreeSet;

use memchr::memmem;

/// The longest file name (`NAME_MAX` of Linux). Without a limit, overlapping names in a damaged
/// file would be far larger than the file.
const LONGEST_NAME: usize = 255;
/// The prefixes of such names.
const PREFIXES: [&[u8]; 3] = [b"_INTERNAL_", b"_GLOBAL__N__", b"__nv_static_"];
/// The extensions of source files.
const EXTENSIONS: [&str; 13] = [
    "cu", "cuh", "hip", "cpp", "cxx", "cc", "c", "C", "f90", "F90", "f", "rs", "sycl",
];

/// The translation units in the strings of a symbol table, or in PTX.
pub(super) fn of_symbols(text: &[u8]) -> BTreeSet<Vec<u8>> {
    let mut found = BTreeSet::new();
    for prefix in PREFIXES {
        for at in memmem::find_iter(text, prefix) {
            let rest = text.get(at + prefix.len()..).unwrap_or_default();
            found.extend(after_prefix(rest, prefix == PREFIXES[2]));
        }
    }
    found
}

/// The file in the text after a prefix. `counted`: the text begins with a number and two
/// underscores.
fn after_prefix(mut rest: &[u8], counted: bool) -> Option<Vec<u8>> {
    if counted {
        let (_, after) = number(rest)?;
        rest = after.strip_prefix(b"__")?;
    }
    let (hash, rest) = rest.split_at_checked(8)?;
    let (length, rest) = number(
        rest.strip_prefix(b"_")
            .filter(|_| hash.iter().all(u8::is_ascii_hexdigit))?,
    )?;
    let name = rest.strip_prefix(b"_")?.get(..length)?;
    let is_name = (1..=LONGEST_NAME).contains(&name.len())
        && name
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    let text = std::str::from_utf8(name).ok().filter(|_| is_name)?;
    let with_dot = |extension: &str| {
        text.strip_suffix(extension)?
            .strip_suffix('_')
            .map(|stem| format!("{stem}.{extension}"))
    };
    Some(
        EXTENSIONS
            .into_iter()
            .find_map(with_dot)
            .unwrap_or_else(|| text.to_owned())
            .into_bytes(),
    )
}

/// A decimal number and the text after it.
fn number(text: &[u8]) -> Option<(usize, &[u8])> {
    const MOST_DIGITS: usize = 20;
    let digits = text
        .iter()
        .take(MOST_DIGITS)
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    let (number, rest) = text.split_at_checked(digits)?;
    Some((std::str::from_utf8(number).ok()?.parse().ok()?, rest))
}

/// The file of a file symbol, if it is a source file and not a name that a link-time optimizer made
/// up.
pub(super) fn of_file_symbol(name: &[u8]) -> Option<&[u8]> {
    let dot = memchr::memrchr(b'.', name)?;
    let extension = std::str::from_utf8(name.get(dot + 1..)?).ok()?;
    EXTENSIONS.contains(&extension).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nvidias_names_tell_their_file() {
        let text = b"\0_Zx_INTERNAL_9bf1d7ca_9_curand_cu_7a7eb9d1\0_GLOBAL__N__57686b55_4_a_cu_45d778d9\0\
            __nv_static_25__45ddc4bb_4_b_cu_848acf13__Z1kPf\0_INTERNAL_9bf1d7ca_9_curand_cu_7a7eb9d1\0_INTERNAL_zz_4_a_cu\0_INTERNAL_9bf1d7ca_99_a";
        let found: Vec<String> = of_symbols(text)
            .into_iter()
            .map(|unit| String::from_utf8(unit).unwrap())
            .collect();
        assert_eq!(found, ["a.cu", "b.cu", "curand.cu"]);
    }

    #[test]
    fn names_that_no_file_has_are_no_units() {
        let name = |length: usize| format!("_INTERNAL_9bf1d7ca_{length}_{}", "a".repeat(length));
        assert_eq!(of_symbols(name(255).as_bytes()).len(), 1);
        assert_eq!(of_symbols(name(256).as_bytes()).len(), 0);
    }

    #[test]
    fn symbols_for_files_are_units_if_they_are_sources() {
        assert_eq!(of_file_symbol(b"saxpy.hip"), Some(&b"saxpy.hip"[..]));
        assert_eq!(of_file_symbol(b"lto.tmp"), None);
        assert_eq!(of_file_symbol(b"crt0"), None);
    }
}
