//! PTX: each kernel, function and variable is a statement of the module (NVIDIA's "PTX ISA", Syntax
//! and Directives). Names of labels, parameters and stack memory contain the function's name or its
//! number in the module, so only the order in which they appear counts.

use std::collections::{BTreeSet, HashMap};

use xxhash_rust::xxh3::Xxh3;

use super::{CodeDigest, Digests, Piece, add_name};

/// Directives that end with their line: those of the module, and those for debuggers.
const LINES: [&[u8]; 5] = [b".version", b".target", b".address_size", b".file", b".loc"];

/// The prefixes of names that compilers number within a module.
const NUMBERED: [&[u8]; 4] = [b"$L", b"L__", b"LBB", b"__local_depot"];

/// The limit on the tokens of a statement.
const MOST_TOKENS: usize = 1 << 26;

/// Returns the digest of each kernel that the module `text` defines.
pub(super) fn digests(text: &[u8]) -> HashMap<String, CodeDigest> {
    let statements = statements(text);
    let mut named = Named::default();
    for (at, statement) in (0..).zip(&statements) {
        named.add(statement, at);
    }
    let piece = |at: u64| {
        let statement = usize::try_from(at).ok().and_then(|at| statements.get(at));
        match statement {
            Some(statement) => statement.piece(&named),
            None => Piece::default(),
        }
    };
    let mut digests = Digests::new(&piece);
    let kernels = (0..)
        .zip(&statements)
        .filter(|(_, statement)| statement.is_kernel && statement.is_definition);
    kernels
        .map(|(at, statement)| {
            let name = String::from_utf8_lossy(statement.name).into_owned();
            (name, digests.of(&[at]))
        })
        .collect()
}

/// The statements of a module, by their names.
#[derive(Default)]
struct Named<'t> {
    all: HashMap<&'t [u8], u64>,
    /// The first bytes of the names. Most tokens are registers and instructions, which start with
    /// other bytes and need no lookup.
    starts: BTreeSet<u8>,
}

impl<'t> Named<'t> {
    /// Adds the statement with this number. A definition replaces a declaration.
    fn add(&mut self, statement: &Statement<'t>, at: u64) {
        let is_known = self.all.contains_key(statement.name);
        if let Some(start) = statement.name.first()
            && (!is_known || statement.is_definition)
        {
            self.all.insert(statement.name, at);
            self.starts.insert(*start);
        }
    }

    fn get(&self, token: &[u8]) -> Option<u64> {
        let start = token.first()?;
        let at = || self.all.get(token).copied();
        self.starts.contains(start).then(at)?
    }
}

/// A kernel, a function, a variable, or a directive of the module.
struct Statement<'t> {
    name: &'t [u8],
    text: &'t [u8],
    is_kernel: bool,
    is_function: bool,
    /// Whether it has a body, or is a variable of this module.
    is_definition: bool,
}

impl Statement<'_> {
    /// The statement without numbers of the module.
    fn piece(&self, named: &Named<'_>) -> Piece {
        let mut hash = Xxh3::new();
        let mut targets = Vec::new();
        let mut numbers: HashMap<&[u8], u64> = HashMap::new();
        // Those of all statements at once would take more memory than the module.
        let own: Vec<&[u8]> = Tokens { rest: self.text }.take(MOST_TOKENS).collect();
        let is_numbered = |token: &[u8]| NUMBERED.iter().any(|start| token.starts_with(start));
        let mut uses: HashMap<&[u8], usize> = HashMap::new();
        for token in own.iter().filter(|token| is_numbered(token)) {
            *uses.entry(token).or_default() += 1;
        }
        let mut rest = own.iter().peekable();
        while let Some(token) = rest.next() {
            // Only debug information refers to such a label.
            if is_numbered(token)
                && uses.get(token) == Some(&1)
                && rest.next_if(|next| **next == b":").is_some()
            {
                continue;
            }
            let is_own = token.starts_with(self.name) && !self.name.is_empty();
            if *token == self.name {
                // The code of a function matters, and not its name; variables and functions of
                // other modules have nothing else.
                if !self.is_function || !self.is_definition {
                    add_name(&mut hash, token);
                }
            } else if is_own || is_numbered(token) {
                let next = numbers.len() as u64;
                let number = *numbers.entry(token).or_insert(next);
                hash.update(b"\xfflocal");
                hash.update(&number.to_le_bytes());
            } else if let Some(target) = named.get(token) {
                hash.update(b"\xfflink");
                targets.push(target);
            } else {
                hash.update(token);
                hash.update(&[0]);
            }
        }
        Piece {
            digest: hash.digest128(),
            targets,
        }
    }
}

/// Splits a module into its statements.
fn statements(text: &[u8]) -> Vec<Statement<'_>> {
    let mut all = Vec::new();
    let mut tokens = Tokens { rest: text };
    let (mut start, mut depth) = (text, 0usize);
    // The tokens of the statement that are not in braces.
    let mut head = Vec::new();
    let (mut is_function, mut is_body) = (false, false);
    while let Some(token) = tokens.next() {
        match token {
            b".entry" | b".func" if depth == 0 => is_function = true,
            b"{" => depth += 1,
            b"}" => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 && head.len() < MOST_TOKENS {
            head.push(token);
            is_body = is_function || head.first() == Some(&&b".section"[..]);
        }
        let is_brace = token == b"}";
        let ends = depth == 0 && (token == b";" || is_brace && is_body);
        if ends {
            let size = start.len() - tokens.rest.len();
            let own = start.get(..size).unwrap_or_default();
            all.push(statement(own, &head, is_brace));
            start = tokens.rest;
            head.clear();
            is_function = false;
        }
    }
    all
}

/// The statement `text`, with the tokens `head` outside of braces.
fn statement<'t>(text: &'t [u8], head: &[&'t [u8]], has_body: bool) -> Statement<'t> {
    let is_kernel = head.contains(&&b".entry"[..]);
    let is_function = is_kernel || head.contains(&&b".func"[..]);
    let is_word = |token: &[u8]| {
        token
            .first()
            .is_some_and(|byte| byte.is_ascii_alphabetic() || b"_$%".contains(byte))
    };
    let name = if is_function {
        let directive = head
            .iter()
            .position(|token| *token == b".entry" || *token == b".func");
        let mut rest = head
            .iter()
            .skip(directive.map_or(0, |at| at + 1))
            .peekable();
        // The parameter in which a function returns.
        if rest.peek().is_some_and(|token| **token == b"(") {
            rest.by_ref().find(|token| **token == b")");
        }
        rest.find(|token| is_word(token))
    } else {
        let declared = head
            .iter()
            .take_while(|token| !matches!(**token, b"[" | b"=" | b";"));
        declared.filter(|token| is_word(token)).last()
    };
    Statement {
        name: name.copied().unwrap_or_default(),
        text,
        is_kernel,
        is_function,
        is_definition: if is_function {
            has_body
        } else {
            !head.contains(&&b".extern"[..])
        },
    }
}

/// The words, numbers and signs of a text, without comments and line directives.
struct Tokens<'t> {
    rest: &'t [u8],
}

impl<'t> Iterator for Tokens<'t> {
    type Item = &'t [u8];

    fn next(&mut self) -> Option<&'t [u8]> {
        let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"_$%.".contains(byte);
        while let Some(first) = self.rest.first() {
            let rest = self.rest;
            let len = match rest {
                [b'/', b'/', ..] => line(rest),
                [b'/', b'*', ..] => {
                    memchr::memmem::find(rest, b"*/").map_or(rest.len(), |at| at + 2)
                }
                [b'"', inner @ ..] => inner
                    .iter()
                    .position(|byte| *byte == b'"')
                    .map_or(rest.len(), |at| at + 2),
                _ if is_part(first) => rest.iter().take_while(|byte| is_part(byte)).count(),
                _ => 1,
            };
            let (token, after) = rest.split_at_checked(len).unwrap_or((rest, &[]));
            let is_comment = token.starts_with(b"//") || token.starts_with(b"/*");
            self.rest = after;
            if LINES.contains(&token) {
                self.rest = after.get(line(after)..).unwrap_or_default();
            } else if !is_comment && !first.is_ascii_whitespace() {
                return Some(token);
            }
        }
        None
    }
}

/// The length of the line at the start of `text`, with its end.
fn line(text: &[u8]) -> usize {
    memchr::memchr(b'\n', text).map_or(text.len(), |at| at + 1)
}
