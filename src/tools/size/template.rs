//! Names of C++ functions without the parts that distinguish template instances and overloads.

/// Returns `name` without the return type, the parameters, and the template arguments at its end:
/// `ns::kernel` for `void ns::kernel<float, 3>(float*)`. A name without parameters loses only
/// template arguments.
pub(super) fn template_of(name: &str) -> &str {
    let bytes = name.as_bytes();
    let end = parameters(bytes).unwrap_or(bytes.len());
    let end = before_arguments(bytes, end);
    let start = after_type(bytes, end);
    match name.get(start..end) {
        Some(found) if !found.trim().is_empty() => found.trim(),
        _ => name,
    }
}

/// The start of the parameter list: the first parenthesis outside of all brackets that is not a
/// part of the name.
fn parameters(name: &[u8]) -> Option<usize> {
    let mut depth = 0usize;
    let mut at = 0;
    while let Some(byte) = name.get(at) {
        let rest = &name[at..];
        let starts_word = at == 0 || !is_letter(name[at - 1]);
        if let Some(operator) = operator(rest).filter(|_| starts_word) {
            at += operator;
            continue;
        }
        match byte {
            b'(' if depth == 0 => {
                // `(anonymous namespace)::` and `f(int) const::` are parts of the name.
                let close = closing(name, at)?;
                if name.get(close + 1..).is_some_and(leads_on) {
                    at = close;
                } else {
                    return Some(at);
                }
            }
            b'<' | b'(' | b'[' | b'{' => depth += 1,
            b'>' if at > 0 && name[at - 1] == b'-' => {}
            b'>' | b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        at += 1;
    }
    None
}

fn is_letter(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || !byte.is_ascii()
}

/// Whether a name continues after a parenthesis: with `::`, possibly after the qualifier of a
/// function.
fn leads_on(after: &[u8]) -> bool {
    [
        &b"::"[..],
        b" const::",
        b" volatile::",
        b" const volatile::",
    ]
    .into_iter()
    .any(|start| after.starts_with(start))
}

/// The length of an operator's name with brackets in it (`operator<`, `operator()`), if `rest`
/// begins with one.
fn operator(rest: &[u8]) -> Option<usize> {
    const OPERATORS: [&[u8]; 10] = [
        b"()", b"<<=", b">>=", b"<=>", b"<<", b">>", b"<=", b">=", b"->", b"<",
    ];
    let after = rest.strip_prefix(b"operator")?;
    let found = OPERATORS
        .into_iter()
        .chain([&b">"[..], b"[]"])
        .find(|operator| after.starts_with(operator))?;
    Some("operator".len() + found.len())
}

/// The position of the parenthesis that closes the one at `open`.
fn closing(name: &[u8], open: usize) -> Option<usize> {
    let mut depth = 0usize;
    for (at, byte) in name.iter().enumerate().skip(open) {
        match byte {
            b'(' => depth += 1,
            b')' => {
                depth -= 1;
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
    None
}

/// The start of the template arguments that end at `end`; `end` if there are none.
fn before_arguments(name: &[u8], end: usize) -> usize {
    let shown = name.get(..end).unwrap_or_default().trim_ascii_end();
    if !shown.ends_with(b">")
        || shown.ends_with(b"operator>")
        || shown.ends_with(b"operator->")
        || shown.ends_with(b"operator>>")
    {
        return shown.len();
    }
    let mut depth = 0usize;
    for (at, byte) in shown.iter().enumerate().rev() {
        match byte {
            b'>' if at > 0 && shown[at - 1] == b'-' => {}
            b'>' => depth += 1,
            b'<' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return shown[..at].trim_ascii_end().len();
                }
            }
            _ => {}
        }
    }
    shown.len()
}

/// The start of the name after the return type: after the last blank outside of all brackets.
fn after_type(name: &[u8], end: usize) -> usize {
    let mut depth = 0usize;
    for (at, byte) in name.iter().enumerate().take(end).rev() {
        match byte {
            b'>' | b')' | b']' | b'}' => depth += 1,
            b'<' | b'(' | b'[' | b'{' => depth = depth.saturating_sub(1),
            b' ' if depth == 0 && !name[..at].ends_with(b"operator") && !leads_on(&name[at..]) => {
                return at + 1;
            }
            _ => {}
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instances_and_overloads_have_the_name_of_their_template() {
        for (name, wanted) in [
            ("void ns::kernel<float, 3>(float*)", "ns::kernel"),
            ("add(int*, int)", "add"),
            ("kernel", "kernel"),
            (
                "void (anonymous namespace)::softmax<float, (int)4>(float const*)",
                "(anonymous namespace)::softmax",
            ),
            (
                "void gen<S, &(unsigned int f(S*))>(S*, unsigned long)",
                "gen",
            ),
            (
                "void ns::A<int>::run<float>(void (*)(int))",
                "ns::A<int>::run",
            ),
            ("bool ns::operator< <int>(ns::A, ns::A)", "ns::operator<"),
            ("ns::A::operator()(int) const", "ns::A::operator()"),
            ("std::vector<int>* make<std::pair<int, float> >()", "make"),
            (
                "__omp_offloading_fd_1234_main_l12",
                "__omp_offloading_fd_1234_main_l12",
            ),
            (
                "__omp_offloading_fd_1234_ns::f(int*)_l12",
                "__omp_offloading_fd_1234_ns::f",
            ),
            ("", ""),
            ("<<<", "<<<"),
            // A name that ends like that of an operator.
            ("void run<my_operator<int>, (Kind)3>(int*)", "run"),
            ("void scan_operator<int>(int*)", "scan_operator"),
            // A lambda in a function with a qualifier.
            (
                "void A::run(int) const::{lambda(int)#1}::operator()<int>(int) const",
                "A::run(int) const::{lambda(int)#1}::operator()",
            ),
            (
                "A::run(int) const::'lambda'(int)::operator()(int) const",
                "A::run(int) const::'lambda'(int)::operator()",
            ),
        ] {
            assert_eq!(template_of(name), wanted, "{name}");
        }
    }
}
