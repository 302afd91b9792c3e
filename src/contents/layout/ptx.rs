//! Contents of PTX: the text of each kernel and function, from its declaration to its closing
//! brace.

use std::ops::Range;

use memchr::memmem;

use super::sweep::Claim;
use super::{Label, Names, Part};

/// The claims to the whole text and to the text of each function. Their labels are `label` with the
/// purpose PTX and the name of the function.
pub(super) fn read(data: &[u8], label: Label, names: &Names) -> Vec<Claim<Label>> {
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
    for (text, name) in functions(data) {
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
fn functions(data: &[u8]) -> Vec<(Range<usize>, &[u8])> {
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
            .and_then(name)
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
fn name(head: &[u8]) -> Option<&[u8]> {
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
        let [(first, of_first), (_, of_second)] = &functions(text)[..] else {
            panic!("{:?}", functions(text))
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
        assert_eq!(functions(bodies.as_bytes()).len(), MANY);
        for (text, count) in [
            (".func f();\n", 0),
            (".func\n", 0),
            (".func (\n", 0),
            (".func f\n", 0),
            (".entry\n", 0),
        ] {
            let with_body = format!("{}.entry k{{\n}}\n", text.repeat(MANY));
            assert_eq!(functions(with_body.as_bytes()).len(), count + 1, "{text}");
            assert_eq!(
                functions(text.repeat(MANY).as_bytes()).len(),
                count,
                "{text}"
            );
        }
        assert!(started.elapsed() < std::time::Duration::from_secs(20));
    }
}
