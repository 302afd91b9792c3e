//! Groups tokens into arguments: finds the table row for each token, and whether the next token is
//! its operand.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use anyhow::{Result, anyhow};

use super::gnu_ld;
use super::link_exe::{Dialect, dialect_of};
use super::table::{self, Dashes, OptionRow, Route, Shape, own_rows};
use super::table_ld::{host_rows, link_exe_rows};
use super::{Arg, ArgKind, Id, Mode, Role};

/// Returns the mode, dialect and arguments of a command line.
pub(super) fn arguments(role: Role, tokens: &[OsString]) -> Result<(Mode, Dialect, Vec<Arg>)> {
    let mut args = Vec::new();
    let dialect = dialect_of(role, tokens);
    let mut parser = Parser {
        role,
        dialect,
        before_separator: false,
        tokens,
    };
    let mut at = 0;
    if let Some(separator) = parser.separator(&mut args) {
        let tokens = separator..separator + 1;
        args.push(Arg {
            kind: ArgKind::Separator,
            tokens,
            route: Route::Wrapper,
            value: None,
        });
        at = separator + 1;
    }
    while at < tokens.len() {
        let arg = parser.arg(at)?;
        at = arg.tokens.end;
        args.push(arg);
    }
    Ok((mode_of(tokens), dialect, args))
}

fn mode_of(tokens: &[OsString]) -> Mode {
    match tokens {
        [only] => match only.as_bytes() {
            b"--help" => Mode::Help { hidden: false },
            b"--help-hidden" => Mode::Help { hidden: true },
            b"--version" | b"-version" => Mode::Version,
            _ => Mode::Link,
        },
        _ => Mode::Link,
    }
}

fn to_os(bytes: &[u8]) -> OsString {
    OsString::from_vec(bytes.to_vec())
}

/// Returns how a token spells the option of `row` with its full name. `joined`: the value after
/// `=`. `number_next`: whether the next token starts with a digit.
fn whole_name(
    row: &'static OptionRow,
    joined: Option<&[u8]>,
    number_next: bool,
) -> Option<Spelling> {
    match (row.shape, joined) {
        (Shape::Flag | Shape::OptionalEquals, None) => Some(Spelling::Alone(row)),
        (Shape::EitherNumber, None) if !number_next => Some(Spelling::Alone(row)),
        (Shape::Separate | Shape::Either | Shape::EitherNumber, None) => {
            Some(Spelling::Separate(row))
        }
        (
            Shape::Equals | Shape::Either | Shape::EitherNumber | Shape::OptionalEquals,
            Some(value),
        ) => Some(Spelling::Joined(row, to_os(value))),
        _ => None,
    }
}

/// The way in which a token spells an option.
enum Spelling {
    /// Complete in one token.
    Alone(&'static OptionRow),
    /// With its operand in the same token.
    Joined(&'static OptionRow, OsString),
    /// With its operand in the next token.
    Separate(&'static OptionRow),
}

struct Parser<'a> {
    role: Role,
    dialect: Dialect,
    /// Whether the current token is before the separator of clang 14 to 16, where some options of
    /// those releases are accepted.
    before_separator: bool,
    tokens: &'a [OsString],
}

impl Parser<'_> {
    /// Returns the index of the `--` between offld's options and the linker's arguments, if there
    /// is one, and puts the options before it into `args`. Only clang 14 to 16 write it. LLVM 22
    /// has no separator, so any other `--` belongs to the linker.
    fn separator(&mut self, args: &mut Vec<Arg>) -> Option<usize> {
        let separator = self.tokens.iter().position(|token| token == "--")?;
        if self.role != Role::Wrapper {
            return None;
        }
        self.before_separator = true;
        let mut ours = Vec::new();
        let mut at = 0;
        while at < separator {
            match self.arg(at) {
                Ok(arg) if arg.route == Route::Wrapper && arg.tokens.end <= separator => {
                    at = arg.tokens.end;
                    ours.push(arg);
                }
                _ => break,
            }
        }
        self.before_separator = false;
        if at < separator {
            return None;
        }
        *args = ours;
        Some(separator)
    }

    /// Parses the argument that starts at token `at`.
    fn arg(&self, at: usize) -> Result<Arg> {
        let token = &self.tokens[at];
        let one = |kind, route, value| {
            Ok(Arg {
                kind,
                tokens: at..at + 1,
                route,
                value,
            })
        };
        match self.spelling(at) {
            Some(Spelling::Alone(row)) => one(ArgKind::Known(row), row.route, None),
            Some(Spelling::Joined(row, value)) => one(ArgKind::Known(row), row.route, Some(value)),
            Some(Spelling::Separate(row)) => match self.tokens.get(at + 1) {
                Some(value) => Ok(Arg {
                    kind: ArgKind::Known(row),
                    tokens: at..at + 2,
                    route: row.route,
                    value: Some(value.clone()),
                }),
                // The linker reports a missing operand of its own options, but offld needs the
                // output to link.
                None if row.route == Route::Wrapper || row.id == Id::Output => {
                    Err(anyhow!("{}: missing argument", token.to_string_lossy()))
                }
                None => one(ArgKind::Unknown, Route::Host, None),
            },
            // clang passes an empty argument for an empty directory name, and LLVM's wrapper drops
            // it (docs/spec/link-driver.md 2.1). Linkers would treat it as a file.
            None if token.is_empty() && self.role == Role::Wrapper => {
                one(ArgKind::Unknown, Route::Wrapper, None)
            }
            None if self.is_input(token) => one(ArgKind::Input, Route::Both, Some(token.clone())),
            None => one(ArgKind::Unknown, Route::Host, None),
        }
    }

    fn is_input(&self, token: &OsStr) -> bool {
        match (token.as_bytes(), self.dialect) {
            ([] | [b'-', ..], _) => false,
            // `/opt` or `/opt:value`, but not `/dir/file` nor `/file.obj`.
            ([b'/', rest @ ..], Dialect::LinkExe) => {
                let name = rest.split(|byte| *byte == b':').next().unwrap_or_default();
                name.iter()
                    .any(|byte| !byte.is_ascii_alphanumeric() && !b"-_?".contains(byte))
            }
            _ => true,
        }
    }

    fn spelling(&self, at: usize) -> Option<Spelling> {
        let token = self.tokens[at].as_bytes();
        if let Some(found) = self.link_exe_spelling(token) {
            return Some(found);
        }
        let (dashes, body) = match token {
            [b'-', b'-', body @ ..] => (Dashes::Two, body),
            [b'-', body @ ..] => (Dashes::One, body),
            _ => return None,
        };
        let (name, joined) = match body.iter().position(|byte| *byte == b'=') {
            Some(equals) => (&body[..equals], Some(&body[equals + 1..])),
            None => (body, None),
        };
        let number_next = self
            .tokens
            .get(at + 1)
            .is_some_and(|next| next.as_bytes().first().is_some_and(u8::is_ascii_digit));
        if let Some(found) = self
            .rows(name, dashes)
            .find_map(|row| whole_name(row, joined, number_next))
        {
            return Some(found);
        }
        let [letter, rest @ ..] = body else {
            return None;
        };
        let by_letter = self
            .rows(std::slice::from_ref(letter), dashes)
            .find(|row| row.shape.is_letter() && dashes == Dashes::One);
        let Some(row) = by_letter else {
            return self.abbreviation(token, joined, number_next);
        };
        Some(match rest {
            [] if row.shape == Shape::LetterNumber && !number_next => Spelling::Alone(row),
            [] => Spelling::Separate(row),
            value => Spelling::Joined(row, to_os(value)),
        })
    }

    /// Returns the linker option that `token` abbreviates, if there is exactly one. GNU ld accepts
    /// abbreviations; other linkers reject them.
    fn abbreviation(
        &self,
        token: &[u8],
        joined: Option<&[u8]>,
        number_next: bool,
    ) -> Option<Spelling> {
        let [name] = gnu_ld::abbreviated(std::str::from_utf8(token).ok()?) else {
            return None;
        };
        if self.dialect != Dialect::Gnu {
            return None;
        }
        table::named(host_rows(), name.as_bytes())
            .iter()
            .find_map(|row| whole_name(row, joined, number_next))
    }

    /// Returns the applicable rows with this name: offld's options first, then the linker's.
    fn rows(&self, name: &[u8], dashes: Dashes) -> impl Iterator<Item = &'static OptionRow> {
        let (role, before_separator) = (self.role, self.before_separator);
        let host = if self.dialect == Dialect::Gnu {
            host_rows()
        } else {
            &[]
        };
        let both = table::named(own_rows(), name)
            .iter()
            .chain(table::named(host, name));
        both.filter(move |row| row.dashes.accept(dashes) && row.scope.holds(role, before_separator))
    }

    /// Parses an option of link.exe with one of LLVM's four prefixes: `/out:P`, `-out:P`,
    /// `/?out:P`, `-?out:P`. On a command line for GNU linkers only the few that LLVM's wrapper
    /// accepts there are options, in lower case.
    fn link_exe_spelling(&self, token: &[u8]) -> Option<Spelling> {
        let body = match token {
            [b'/' | b'-', b'?', body @ ..] | [b'/' | b'-', body @ ..] => body,
            _ => return None,
        };
        let (name, value) = match body.iter().position(|byte| *byte == b':') {
            Some(colon) => (&body[..colon], Some(&body[colon + 1..])),
            None => (body, None),
        };
        let lower = name.to_ascii_lowercase();
        let name = if self.dialect == Dialect::LinkExe {
            lower.as_slice()
        } else {
            name
        };
        let row = table::named(link_exe_rows(), name).first()?;
        let everywhere = matches!(
            row.id,
            Id::LinkDefaultLib | Id::LibraryPath | Id::LinkOut | Id::LinkWholeArchive
        );
        if self.dialect == Dialect::Gnu && !everywhere {
            return None;
        }
        match (row.shape, value) {
            (Shape::Colon | Shape::OptionalColon, Some(value)) => {
                Some(Spelling::Joined(row, to_os(value)))
            }
            (Shape::OptionalColon, None) => Some(Spelling::Alone(row)),
            (Shape::Flag, None) => Some(Spelling::Alone(row)),
            _ => None,
        }
    }
}
