//! Response files: `@file` on our command line replaced by the arguments in it, and arguments written to one for a child whose
//! command line would be too long for the system (docs/spec/faults.md F21).

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::{fs, io, mem};

use anyhow::{Context, Result, bail};

use super::link_exe::is_msvc;
use super::{Dialect, Role};

/// How arguments are quoted in a response file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Style {
    /// GNU tools, clang, ld.lld: quotes of both kinds, and a backslash takes the meaning of what follows.
    #[default]
    Gnu,
    /// lld-link and other tools of Windows: double quotes, and a backslash is one unless a quote follows.
    Windows,
}

/// The style of the response files a command line names: Windows rules for a link with Microsoft's linker, and where
/// `--rsp-quoting=` (an option of lld) asks for them.
pub fn style_of(role: Role, argv: &[OsString]) -> Style {
    let mut style = Style::Gnu;
    for token in argv {
        let token = token.to_string_lossy();
        let triple = token.strip_prefix("--host-triple=").unwrap_or_default();
        match token.as_ref() {
            "--rsp-quoting=windows" => return Style::Windows,
            "--rsp-quoting=posix" => return Style::Gnu,
            _ if role == Role::Wrapper && is_msvc(triple) => style = Style::Windows,
            _ => {}
        }
    }
    style
}

impl Style {
    /// That of a linker with this kind of command line.
    pub fn of_linker(dialect: Dialect) -> Style {
        match dialect {
            Dialect::Gnu => Style::Gnu,
            Dialect::LinkExe => Style::Windows,
        }
    }
}

/// Replaces every `@file` by the arguments in it, and those in them. An `@file` that does not exist stays as it is: it may be a
/// file's own name, and the linker reports it if not.
pub fn expand(args: Vec<OsString>, style: Style) -> Result<Vec<OsString>> {
    Ok(expand_and_tell(args, style)?.0)
}

/// The same, and the files that were read.
pub(super) fn expand_and_tell(args: Vec<OsString>, style: Style) -> Result<(Vec<OsString>, Vec<PathBuf>)> {
    let mut expanded = (Vec::with_capacity(args.len()), Vec::new());
    expand_into(args, style, &mut Vec::new(), &mut expanded)?;
    Ok(expanded)
}

/// `open` are the files being read, outermost first; `expanded` are the arguments and the files read so far.
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
            let chain: Vec<_> = open.iter().chain([&path]).map(|path| format!("`{}`", path.display())).collect();
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

/// The file `name` stands for: as seen from the current directory, else from the folder of the file that names it.
fn find(name: &Path, outer: Option<&PathBuf>) -> Result<Option<(PathBuf, Vec<u8>)>> {
    let beside = outer.and_then(|outer| outer.parent()).map(|folder| folder.join(name));
    for path in [Some(name.to_owned()), beside].into_iter().flatten() {
        match fs::read(&path) {
            Ok(bytes) => return Ok(Some((path, bytes))),
            Err(error) if not_a_file(&error) => {}
            Err(error) => {
                return Err(error).with_context(|| format!("response file `{}`", path.display()));
            }
        }
    }
    Ok(None)
}

fn not_a_file(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidFilename, InvalidInput, IsADirectory, NotADirectory, NotFound};
    matches!(error.kind(), NotFound | IsADirectory | NotADirectory | InvalidFilename | InvalidInput)
}

fn is_open(path: &Path, open: &[PathBuf]) -> bool {
    let real = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let this = real(path);
    open.iter().any(|other| real(other) == this)
}

/// The bytes as text: Microsoft's tools write UTF-16 with a byte order mark, and a mark may precede UTF-8.
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
        _ => bail!("not the UTF-16 text its byte order mark says it is"),
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
    /// A quote was seen, so that the token counts even if it stays empty.
    quoted: bool,
}

impl Tokens {
    fn end(&mut self) {
        if self.quoted || !self.token.is_empty() {
            self.done.push(OsString::from_vec(mem::take(&mut self.token)));
        }
        self.quoted = false;
    }
}

/// As LLVM and libiberty both read it: within quotes of either kind a backslash takes the meaning of the next byte too.
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

/// As `CommandLineToArgvW` reads it: backslashes before a quote count half, an odd one makes the quote literal; elsewhere they are
/// backslashes. Two quotes within quotes are one.
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

/// Arguments as the text of a response file, one a line, which a child reads back byte for byte. (LLVM's tools drop an empty one.)
///
/// Every argument is in double quotes: that is what all readers agree on, and the file then never starts with what would be taken
/// for a byte order mark.
pub fn spill(args: &[OsString], style: Style) -> Vec<u8> {
    let mut text = Vec::new();
    for arg in args {
        text.push(b'"');
        match style {
            // Within double quotes a backslash is special to all of them before these two only.
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
    // The closing quote follows.
    text.extend(std::iter::repeat_n(b'\\', backslashes));
}

/// Whether a child needs these arguments in a response file.
///
/// Linux refuses a single argument of 128 KiB (`MAX_ARG_STRLEN`) and, where the stack limit is small, arguments and environment of
/// 128 KiB together (`ARG_MAX`'s floor). Some room is left below both for the program's name and the environment.
pub fn needs_spill(args: &[OsString]) -> bool {
    const ROOM: usize = 96 * 1024;
    // Each argument costs its closing zero and a pointer as well.
    let total: usize = args.iter().map(|arg| arg.len() + 1 + size_of::<usize>()).sum();
    total > ROOM
}
