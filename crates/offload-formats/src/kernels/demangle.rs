//! Demangles kernel names: C++ (Itanium ABI), Rust, Fortran (flang), and the names that clang and
//! flang give to OpenMP target regions, which contain function and line. The length of results is
//! limited, because files may be damaged or hostile.

use std::fmt::{self, Write};

use cpp_demangle::{DemangleOptions, Symbol};

use super::Kernel;

/// The limit on the length of a mangled name. Longer names are not demangled.
const LONGEST_MANGLED: usize = 16 << 10;
/// The limit on the length of a demangled name.
const LONGEST_TEXT: usize = 64 << 10;
/// The prefix of the names of OpenMP regions:
/// `__omp_offloading_<device>_<file>_<function>_l<line>`.
pub const OPENMP_PREFIX: &str = "__omp_offloading_";

/// Sets the demangled names of `kernels` of an image of `size` bytes. Mangled names can repeat
/// their own parts many times. Demangling stops when the results together exceed the image's size
/// plus `LONGEST_TEXT`.
pub(super) fn all(kernels: &mut [Kernel], size: usize) {
    let mut left = size.saturating_add(LONGEST_TEXT);
    for kernel in kernels {
        let Some(text) = name(&kernel.name) else {
            continue;
        };
        let Some(rest) = left.checked_sub(text.len()) else {
            return;
        };
        left = rest;
        kernel.demangled = Some(text);
    }
}

/// The name of a kernel in its source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceName {
    /// The function: `fill<float>(float*)`, `saxpy`.
    pub function: String,
    /// The Fortran scope: ` of module kern`. Empty for other languages.
    pub scope: String,
    /// The position of an OpenMP region in the function: `, line 8`. Empty for other kernels.
    pub region: String,
}

impl fmt::Display for SourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SourceName {
            function,
            scope,
            region,
        } = self;
        write!(f, "{function}{scope}{region}")
    }
}

impl SourceName {
    /// Demangles `mangled`. `None` if it is neither mangled nor the name of a region.
    pub fn of(mangled: &str) -> Option<SourceName> {
        let Some((function, region)) = region(mangled) else {
            return SourceName::of_function(mangled);
        };
        // C functions are not mangled.
        let name = SourceName::of_function(function);
        let plain = || SourceName {
            function: function.to_owned(),
            scope: String::new(),
            region: String::new(),
        };
        Some(SourceName {
            region,
            ..name.unwrap_or_else(plain)
        })
    }

    fn of_function(mangled: &str) -> Option<SourceName> {
        if mangled.len() > LONGEST_MANGLED {
            return None;
        }
        let (function, scope) =
            fortran(mangled).or_else(|| Some((mangled_function(mangled)?, String::new())))?;
        Some(SourceName {
            function,
            scope,
            region: String::new(),
        })
    }
}

/// Demangles `mangled`, or returns `None` if it is not mangled.
pub(super) fn name(mangled: &str) -> Option<String> {
    Some(SourceName::of(mangled)?.to_string())
}

fn mangled_function(mangled: &str) -> Option<String> {
    let mut text = Limited(String::new());
    if let Ok(symbol) = rustc_demangle::try_demangle(mangled) {
        // The alternate format omits the hash at the end.
        write!(text, "{symbol:#}").ok()?;
    } else if mangled.starts_with("_Z") {
        Symbol::new(mangled.as_bytes())
            .ok()?
            .structured_demangle(&mut text, &DemangleOptions::new())
            .ok()?;
    } else {
        return None;
    }
    Some(text.0).filter(|text| text != mangled && !text.is_empty())
}

/// Splits flang's name of a Fortran procedure into the procedure and its scopes, innermost first.
/// Names are in lower case, and a capital letter before each is its type (flang's documentation,
/// "Bijective Internal Name Uniquing"): `_QMkernPsaxpy`.
fn fortran(mangled: &str) -> Option<(String, String)> {
    let mut rest = mangled.strip_prefix("_Q")?;
    if rest == "Qmain" {
        return Some(("main program".to_owned(), String::new()));
    }
    let mut scopes: Vec<(char, &str)> = Vec::new();
    while let Some(sort) = rest.chars().next() {
        let after = rest.strip_prefix(sort)?;
        let end = after
            .find(|c: char| c.is_ascii_uppercase())
            .unwrap_or(after.len());
        let (name, next) = after.split_at_checked(end)?;
        let is_name = name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
        // A block (B) has a number that does not occur in the source.
        if !is_name || name.is_empty() || !matches!(sort, 'M' | 'S' | 'F' | 'P' | 'B') {
            return None;
        }
        scopes.push((sort, name));
        rest = next;
    }
    let (_, function) = scopes.pop().filter(|(sort, _)| *sort == 'P')?;
    let scope = |(sort, name): &(char, &str)| match sort {
        'M' => format!(" of module {name}"),
        'S' => format!(" of submodule {name}"),
        'F' => format!(" in {name}"),
        _ => String::new(),
    };
    Some((
        function.to_owned(),
        scopes.iter().rev().map(scope).collect(),
    ))
}

/// The function and the line in the name of an OpenMP region.
fn region(name: &str) -> Option<(&str, String)> {
    let hexadecimal =
        |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let (device, rest) = name.strip_prefix(OPENMP_PREFIX)?.split_once('_')?;
    let (file, rest) = rest.split_once('_')?;
    let (function, end) = rest.rsplit_once("_l")?;
    // Further regions on the same line are numbered. The second one has the number 1.
    let (line, count) = end
        .split_once('_')
        .map_or((end, None), |(line, count)| (line, Some(count)));
    if function.is_empty()
        || !hexadecimal(device)
        || !hexadecimal(file)
        || !number(line)
        || !count.is_none_or(number)
    {
        return None;
    }
    let which = count.and_then(|count| count.parse::<u64>().ok()?.checked_add(1));
    let which = which
        .map(|which| format!(" (region {which})"))
        .unwrap_or_default();
    Some((function, format!(", line {line}{which}")))
}

/// Text of limited length. Writing more is an error.
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
            (
                "_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE",
                Some("core::fmt::Write::write_fmt"),
            ),
            ("_RNvCs1234_7mycrate3foo", Some("mycrate::foo")),
            (
                "__omp_offloading_fd02_c0ffee__Z3foov_l12",
                Some("foo(), line 12"),
            ),
            (
                "__omp_offloading_fd02_c0ffee__Z3foov_l12_1",
                Some("foo(), line 12 (region 2)"),
            ),
            ("__omp_offloading_fd02_c0ffee_main_l3", Some("main, line 3")),
            ("__omp_offloading_fd02_c0ffee_a_l7_l3", Some("a_l7, line 3")),
            (
                "__omp_offloading_fd02_c0ffee__QMkernPsaxpy_l8",
                Some("saxpy of module kern, line 8"),
            ),
            (
                "__omp_offloading_fd02_c0ffee__QQmain_l8",
                Some("main program, line 8"),
            ),
            ("__omp_offloading_fd02_c0ffee_main", None),
            ("__omp_offloading_fd02_c0ffee_main_l", None),
            ("__omp_offloading_fd02_c0ffee__l3", None),
            ("__omp_offloading_xy_c0ffee_main_l3", None),
            ("_QMkernPsaxpy", Some("saxpy of module kern")),
            (
                "_QMkernSpartsPsaxpy_2",
                Some("saxpy_2 of submodule parts of module kern"),
            ),
            ("_QMkernFsaxpyPinner", Some("inner in saxpy of module kern")),
            ("_QPsaxpy", Some("saxpy")),
            ("_QMkernEvalue", None),
            ("_QMkern", None),
            ("_QMPsaxpy", None),
            ("_Q", None),
            ("_QP\u{e4}", None),
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
        // Each pair consists of two copies of the previous one.
        let mut grown = String::from("_Z1fSt4pairIiiE");
        for id in [
            '_', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'A', 'B', 'C', 'D', 'E', 'F',
            'G', 'H',
        ] {
            let id = if id == '_' {
                "S0_".to_owned()
            } else {
                format!("S{id}_")
            };
            grown.push_str(&format!("St4pairI{id}{id}E"));
        }
        if let Some(text) = name(&grown) {
            assert!(text.len() <= LONGEST_TEXT, "{}", text.len());
        }
        assert_eq!(name(&format!("_Z{}f", "1".repeat(LONGEST_MANGLED))), None);
        for deep in ["P", "N", "I", "S", "X", "T", "(", "DT"] {
            name(&format!("_Z1f{}", deep.repeat(5000)));
        }
        let kernel = Kernel {
            name: "_Z1fSs".to_owned(),
            ..Kernel::default()
        };
        let mut many = vec![kernel; 100_000];
        all(&mut many, 1000);
        let length: usize = many
            .iter()
            .filter_map(|kernel| kernel.demangled.as_ref())
            .map(String::len)
            .sum();
        assert!((1..=1000 + LONGEST_TEXT).contains(&length), "{length}");
    }
}
