//! What is in PTX: the text of each kernel and function, from its declaration to the brace that closes it.

use memchr::memmem;

use super::sweep::Claim;
use super::{Label, Names, Part};

/// The claims to the text of functions, each as `label` but for its name.
pub(super) fn read(data: &[u8], label: Label, names: &Names) -> Vec<Claim<Label>> {
    const WHOLE: u32 = 2;
    const FUNCTION: u32 = 4;
    let label = Label { part: Part::Ptx, ..label };
    let mut claims = vec![Claim { start: 0, end: data.len() as u64, depth: WHOLE, to: label }];
    let mut at = 0;
    while let Some((start, end, name)) = next(data, at) {
        let kernel = names.of(name);
        claims.push(Claim { start: start as u64, end: end as u64, depth: FUNCTION, to: Label { kernel, ..label } });
        at = end;
    }
    claims
}

/// The next function with a body from `at` on: where it starts and ends, and its name.
fn next(data: &[u8], mut at: usize) -> Option<(usize, usize, &[u8])> {
    loop {
        let rest = data.get(at..)?;
        let entry = memmem::find(rest, b".entry");
        let function = memmem::find(rest.get(..entry.unwrap_or(rest.len()))?, b".func");
        let word = at + function.or(entry)?;
        let start = memchr::memrchr(b'\n', data.get(at..word)?).map_or(at, |line| at + line + 1);
        let after = word + if function.is_some() { ".func".len() } else { ".entry".len() };
        let declaration = data.get(start..word)?;
        let body = data.get(after..)?;
        let brace = memchr::memchr(b'{', body);
        let semicolon = memchr::memchr(b';', body).unwrap_or(usize::MAX);
        let (Some(brace), true) = (brace.filter(|brace| *brace < semicolon), is_declaration(declaration)) else {
            at = after;
            continue;
        };
        let Some(name) = name(body.get(..brace)?) else {
            at = after;
            continue;
        };
        let closing = memmem::find(body.get(brace..)?, b"\n}");
        let mut end = closing.map_or(data.len(), |closing| after + brace + closing + 2);
        end += usize::from(data.get(end) == Some(&b'\n'));
        return Some((start, end, name));
    }
}

/// Whether what stands before `.entry` or `.func` in a line are other directives and nothing else.
fn is_declaration(before: &[u8]) -> bool {
    let mut words = before.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    words.all(|word| matches!(word, b".visible" | b".weak" | b".extern" | b".common"))
}

/// The name in a function's head, after what it returns in parentheses.
fn name(head: &[u8]) -> Option<&[u8]> {
    let mut head = head.trim_ascii_start();
    if head.starts_with(b"(") {
        head = head.get(memchr::memchr(b')', head)? + 1..)?.trim_ascii_start();
    }
    let length = head.iter().take_while(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'%')).count();
    head.get(..length).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_found_with_their_bodies_and_prototypes_are_not() {
        let text = b".version 8.0\n.target sm_80\n.extern .func (.param .b32 r) vprintf\n(\n.param .b64 a\n)\n;\n\
            .visible .entry _Z1kPf(\n.param .u64 p\n)\n{\n\tret;\n}\n\n.func  (.param .b32 r) _Z1fv()\n{\n{\n\tret;\n}\n}\n// .entry none { \n";
        let (start, end, first) = next(text, 0).unwrap();
        assert_eq!(first, b"_Z1kPf");
        assert!(text[start..end].starts_with(b".visible .entry") && text[start..end].ends_with(b"ret;\n}\n"));
        let (_, end, second) = next(text, end).unwrap();
        assert_eq!(second, b"_Z1fv");
        assert!(next(text, end).is_none());
    }
}
