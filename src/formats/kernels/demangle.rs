//! Names of kernels as their source has them: C++ (Itanium's ABI) and Rust, also within the names that clang gives to OpenMP's
//! regions. What a name of a damaged or hostile file can grow to is limited.

use std::fmt::{self, Write};

use cpp_demangle::{DemangleOptions, Symbol};

use super::Kernel;

/// Longer names are left as they are.
const LONGEST: usize = 16 << 10;
/// No name gets longer than this.
const LONGEST_TEXT: usize = 64 << 10;
/// How the names of OpenMP's regions begin: `__omp_offloading_<device>_<file>_<function>_l<line>`.
const OPENMP: &str = "__omp_offloading_";

/// Fills in the names of `kernels` of an image of `size` bytes. Names can refer to their own parts again and again: once all of
/// them have more letters than the image has bytes, the rest stays without.
pub(super) fn all(kernels: &mut [Kernel], size: usize) {
    let mut left = size.saturating_add(LONGEST_TEXT);
    for kernel in kernels {
        let Some(text) = name(&kernel.name) else { continue };
        let Some(rest) = left.checked_sub(text.len()) else { return };
        left = rest;
        kernel.demangled = Some(text);
    }
}

/// `mangled` as the source has it; none if it is not mangled.
pub(super) fn name(mangled: &str) -> Option<String> {
    match region(mangled) {
        Some((before, function, after)) => Some(format!("{before}{}{after}", function_name(function)?)),
        None => function_name(mangled),
    }
}

fn function_name(mangled: &str) -> Option<String> {
    if mangled.len() > LONGEST {
        return None;
    }
    let mut text = Limited(String::new());
    if let Ok(symbol) = rustc_demangle::try_demangle(mangled) {
        // Without the hash at the end.
        write!(text, "{symbol:#}").ok()?;
    } else if mangled.starts_with("_Z") {
        Symbol::new(mangled.as_bytes()).ok()?.structured_demangle(&mut text, &DemangleOptions::new()).ok()?;
    } else {
        return None;
    }
    Some(text.0).filter(|text| text != mangled && !text.is_empty())
}

/// The name of the function in that of an OpenMP region, with what stands before and after it.
fn region(name: &str) -> Option<(&str, &str, &str)> {
    let hexadecimal = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let (device, rest) = name.strip_prefix(OPENMP)?.split_once('_')?;
    let (file, rest) = rest.split_once('_')?;
    let (function, line) = rest.rsplit_once("_l")?;
    let is_line = line.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_');
    let start = OPENMP.len() + device.len() + file.len() + 2;
    let found = hexadecimal(device) && hexadecimal(file) && is_line;
    found
        .then(|| (name.get(..start), function, name.get(start + function.len()..)))
        .and_then(|(before, function, after)| Some((before?, function, after?)))
}

/// Text of a limited length; more is an error.
struct Limited(String);

impl fmt::Write for Limited {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        if self.0.len().saturating_add(part.len()) > LONGEST_TEXT {
            return Err(fmt::Error);
        }
        self.0.push_str(part);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_as_in_the_source() {
        let cases = [
            ("_Z3addPii", Some("add(int*, int)")),
            ("_Z6kernelIfEvPT_", Some("void kernel<float>(float*)")),
            ("_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE", Some("core::fmt::Write::write_fmt")),
            ("_RNvCs1234_7mycrate3foo", Some("mycrate::foo")),
            ("__omp_offloading_fd02_c0ffee__Z3foov_l12", Some("__omp_offloading_fd02_c0ffee_foo()_l12")),
            ("__omp_offloading_fd02_c0ffee__Z3foov_l12_1", Some("__omp_offloading_fd02_c0ffee_foo()_l12_1")),
            ("__omp_offloading_fd02_c0ffee_main_l3", None),
            ("_Z", None),
            ("_Z3add", Some("add")),
            ("_Z9tooshort", None),
            ("saxpy", None),
            ("", None),
        ];
        for (mangled, expected) in cases {
            assert_eq!(name(mangled).as_deref(), expected, "{mangled}");
        }
    }

    #[test]
    fn names_that_grow_without_bounds_are_left() {
        // Each pair is made of the one before it, twice.
        let mut grown = String::from("_Z1fSt4pairIiiE");
        for id in ['_', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'A', 'B', 'C', 'D', 'E', 'F', 'G', 'H'] {
            let id = if id == '_' { "S0_".to_owned() } else { format!("S{id}_") };
            grown.push_str(&format!("St4pairI{id}{id}E"));
        }
        if let Some(text) = name(&grown) {
            assert!(text.len() <= LONGEST_TEXT, "{}", text.len());
        }
        assert_eq!(name(&format!("_Z{}f", "1".repeat(LONGEST))), None);
        for deep in ["P", "N", "I", "S", "X", "T", "(", "DT"] {
            name(&format!("_Z1f{}", deep.repeat(5000)));
        }
        let kernel = Kernel { name: "_Z1fSs".to_owned(), ..Kernel::default() };
        let mut many = vec![kernel; 100_000];
        all(&mut many, 1000);
        let length: usize = many.iter().filter_map(|kernel| kernel.demangled.as_ref()).map(String::len).sum();
        assert!((1..=1000 + LONGEST_TEXT).contains(&length), "{length}");
    }
}
