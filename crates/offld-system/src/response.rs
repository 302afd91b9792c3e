//! Response files: replaces `@file` on a command line with the arguments in the file, and writes
//! arguments to such a file if a child process's command line would exceed the system's limit
//! (docs/spec/faults.md F21).

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::{fs, io, mem};

use anyhow::{Context, Result, bail};

/// The quoting rules of a response file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Style {
    /// GNU tools, clang, ld.lld: single and double quotes; a backslash makes the next character
    /// literal.
    #[default]
    Gnu,
    /// lld-link and other Windows tools: double quotes; a backslash is an ordinary character unless
    /// a quote follows.
    Windows,
}

/// Replaces every `@file` with the arguments in the file, recursively. An `@file` that does not
/// exist stays: a file may have that name, and if not, the linker reports it.
pub fn expand(args: Vec<OsString>, style: Style) -> Result<Vec<OsString>> {
    Ok(expand_with_files(args, style)?.0)
}

/// Like [`expand`], but also returns the files that were read.
pub fn expand_with_files(
    args: Vec<OsString>,
    style: Style,
) -> Result<(Vec<OsString>, Vec<PathBuf>)> {
    let mut expanded = (Vec::with_capacity(args.len()), Vec::new());
    expand_into(args, style, &mut Vec::new(), &mut expanded)?;
    Ok(expanded)
}

/// `open` contains the files being read, outermost first; `expanded` the arguments and the files
/// read so far.
fn expand_into(
    args: Vec<OsString>,
    style: Style,
    open: &mut Vec<PathBuf>,
    expanded: &mut (Vec<OsString>, Vec<PathBuf>),
) -> Result<()> {
    for arg in args {
        let Some(name) = arg.as_bytes().strip_prefix(b"@") else {
            expanded.0.push(arg);
            continue;
        };
        let Some((path, bytes)) = find(Path::new(OsStr::from_bytes(name)), open.last())? else {
            expanded.0.push(arg);
            continue;
        };
        if is_open(&path, open) {
            let chain: Vec<_> = open
                .iter()
                .chain([&path])
                .map(|path| format!("`{}`", path.display()))
                .collect();
            bail!("response files include each other: {}", chain.join(" -> "));
        }
        let text = decode(&bytes).with_context(|| path.display().to_string())?;
        expanded.1.push(path.clone());
        open.push(path);
        expand_into(tokenize(&text, style), style, open, expanded)?;
        open.pop();
    }
    Ok(())
}

/// Returns path and contents of the file `name`, relative to the current directory, else to the
/// directory of the including file.
fn find(name: &Path, outer: Option<&PathBuf>) -> Result<Option<(PathBuf, Vec<u8>)>> {
    let next_to_outer = outer
        .and_then(|outer| outer.parent())
        .map(|directory| directory.join(name));
    for path in [Some(name.to_owned()), next_to_outer].into_iter().flatten() {
        match fs::read(&path) {
            Ok(bytes) => return Ok(Some((path, bytes))),
            Err(error) if not_a_file(&error) => {}
            Err(error) => {
                return Err(error)
                    .with_context(|| format!("cannot read response file `{}`", path.display()));
            }
        }
    }
    Ok(None)
}

fn not_a_file(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidFilename, InvalidInput, IsADirectory, NotADirectory, NotFound};
    matches!(
        error.kind(),
        NotFound | IsADirectory | NotADirectory | InvalidFilename | InvalidInput
    )
}

fn is_open(path: &Path, open: &[PathBuf]) -> bool {
    let real = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let this = real(path);
    open.iter().any(|other| real(other) == this)
}

/// Decodes the text to UTF-8 without a byte order mark. Microsoft's tools write UTF-16 with such a
/// mark.
fn decode(bytes: &[u8]) -> Result<Cow<'_, [u8]>> {
    let (units, order): (_, fn([u8; 2]) -> u16) = match bytes {
        [0xef, 0xbb, 0xbf, text @ ..] => return Ok(Cow::Borrowed(text)),
        [0xff, 0xfe, units @ ..] => (units, u16::from_le_bytes),
        [0xfe, 0xff, units @ ..] => (units, u16::from_be_bytes),
        _ => return Ok(Cow::Borrowed(bytes)),
    };
    let (pairs, rest) = units.as_chunks::<2>();
    let units: Vec<u16> = pairs.iter().map(|pair| order(*pair)).collect();
    match String::from_utf16(&units) {
        Ok(text) if rest.is_empty() => Ok(Cow::Owned(text.into_bytes())),
        _ => bail!("invalid UTF-16 after the byte order mark"),
    }
}

/// Splits the text of a response file into arguments.
pub fn tokenize(text: &[u8], style: Style) -> Vec<OsString> {
    let mut tokens = Tokens::default();
    match style {
        Style::Gnu => tokenize_gnu(text, &mut tokens),
        Style::Windows => tokenize_windows(text, &mut tokens),
    }
    tokens.end();
    tokens.done
}

#[derive(Default)]
struct Tokens {
    done: Vec<OsString>,
    token: Vec<u8>,
    /// Whether the token contains a quote; a quoted token counts even if it is empty.
    quoted: bool,
}

impl Tokens {
    fn end(&mut self) {
        if self.quoted || !self.token.is_empty() {
            self.done
                .push(OsString::from_vec(mem::take(&mut self.token)));
        }
        self.quoted = false;
    }
}

/// Follows the rules of LLVM and libiberty: a backslash makes the next byte literal, also within
/// quotes of either kind.
fn tokenize_gnu(text: &[u8], tokens: &mut Tokens) {
    let mut quote = None;
    let mut bytes = text.iter().copied();
    while let Some(byte) = bytes.next() {
        match (byte, quote) {
            (b'\\', _) => tokens.token.push(bytes.next().unwrap_or(b'\\')),
            (_, Some(open)) if byte == open => quote = None,
            (_, Some(_)) => tokens.token.push(byte),
            (b'"' | b'\'', None) => {
                quote = Some(byte);
                tokens.quoted = true;
            }
            _ if is_space(byte) => tokens.end(),
            _ => tokens.token.push(byte),
        }
    }
}

/// Follows the rules of `CommandLineToArgvW`. Before a quote, two backslashes stand for one, and an
/// odd one makes the quote literal; elsewhere they are ordinary. Two quotes within quotes are one
/// literal quote.
fn tokenize_windows(text: &[u8], tokens: &mut Tokens) {
    let mut in_quotes = false;
    let mut at = 0;
    while at < text.len() {
        let byte = text[at];
        match byte {
            b'\\' => {
                let run = text[at..].iter().take_while(|byte| **byte == b'\\').count();
                let quote_follows = text.get(at + run) == Some(&b'"');
                let backslashes = if quote_follows { run / 2 } else { run };
                tokens.token.extend(std::iter::repeat_n(b'\\', backslashes));
                at += run;
                if quote_follows && run % 2 == 1 {
                    tokens.token.push(b'"');
                    at += 1;
                }
                continue;
            }
            b'"' if in_quotes && text.get(at + 1) == Some(&b'"') => {
                tokens.token.push(b'"');
                at += 1;
            }
            b'"' => {
                in_quotes = !in_quotes;
                tokens.quoted = true;
            }
            _ if is_space(byte) && !in_quotes => tokens.end(),
            _ => tokens.token.push(byte),
        }
        at += 1;
    }
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | 0x0b | 0x0c | 0)
}

/// Formats a response file with these arguments, one per line. A child process reads them back byte
/// for byte, except that LLVM's tools drop empty arguments.
///
/// Every argument is in double quotes. All readers agree on these, and the file then cannot start
/// with bytes that look like a byte order mark.
pub fn spill(args: &[OsString], style: Style) -> Vec<u8> {
    let mut text = Vec::new();
    for arg in args {
        text.push(b'"');
        match style {
            // Within double quotes, every reader drops a backslash only before these bytes.
            Style::Gnu => arg.as_bytes().iter().for_each(|byte| {
                if matches!(byte, b'"' | b'\\') {
                    text.push(b'\\');
                }
                text.push(*byte);
            }),
            Style::Windows => quote_windows(arg.as_bytes(), &mut text),
        }
        text.extend_from_slice(b"\"\n");
    }
    text
}

fn quote_windows(arg: &[u8], text: &mut Vec<u8>) {
    let mut backslashes = 0;
    for byte in arg {
        if *byte == b'"' {
            text.extend(std::iter::repeat_n(b'\\', backslashes + 1));
        }
        backslashes = if *byte == b'\\' { backslashes + 1 } else { 0 };
        text.push(*byte);
    }
    // The closing quote follows, and backslashes before it must be doubled.
    text.extend(std::iter::repeat_n(b'\\', backslashes));
}

/// Whether a child process needs these arguments in a response file.
///
/// Linux refuses a single argument of 128 KiB (`MAX_ARG_STRLEN`). If the stack limit is small, it
/// also refuses arguments and environment of 128 KiB together (the lower bound of `ARG_MAX`). The
/// limit here is lower, to leave space for the program's name and the environment.
pub fn needs_spill(args: &[OsString]) -> bool {
    const LIMIT: usize = 96 * 1024;
    // Each argument also takes a terminating zero and a pointer.
    let total: usize = args
        .iter()
        .map(|arg| arg.len() + 1 + size_of::<usize>())
        .sum();
    total > LIMIT
}
