//! The command line of a link as a ledger: the user's tokens, each tagged with what it is and who gets it, never rewritten
//! and never lost. What the host linker is given is read off the ledger token for token (faults F1 to F3); what the tags mean
//! for offld is `request`. Nothing here opens an input, searches a library or runs anything.

pub mod request;
pub mod response;
mod state;
mod table;
mod table_ld;
mod target_arg;
#[cfg(test)]
mod tests;

use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use anyhow::{Result, anyhow};

use state::Walk;
pub use table::{Dashes, Id, Route, Row, Scope, Shape, own_rows};
pub use table_ld::{host_rows, link_exe_rows};
pub use target_arg::{TargetArg, is_llvm_arch};

/// Whose command line this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// A drop-in `clang-linker-wrapper`: our options, then the host linker's arguments.
    Wrapper,
    /// A drop-in linker, `ld.offld`: raw linker arguments.
    Ld,
}

/// Which linker's spelling the host arguments are in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dialect {
    /// GNU ld, gold, ld.lld, mold, wild.
    Gnu,
    /// link.exe and lld-link: `/opt:value`, and none of the single letters.
    LinkExe,
}

/// What a command line asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Our help. Only when it is the sole argument: on a link line it is the linker's (fault F23).
    Help {
        /// `--help-hidden`: options of earlier releases as well.
        hidden: bool,
    },
    /// Our version, likewise only alone.
    Version,
    /// A link.
    Link,
}

/// What an argument is.
#[derive(Debug, Clone, Copy)]
pub enum What {
    /// An option with a row in the tables.
    Known(&'static Row),
    /// The `--` that LLVM 14 to 18 place between our options and the linker's.
    Separator,
    /// A file.
    Input,
    /// Anything else: an option no table has, `--`, `-`, an empty argument.
    Unknown,
}

/// One argument: an input, or an option with its operand.
#[derive(Debug, Clone)]
pub struct Arg {
    /// What it is.
    pub what: What,
    /// Its tokens, as a range of [`Ledger::tokens`].
    pub tokens: Range<usize>,
    /// Who gets it.
    pub route: Route,
    /// The operand, joined or separate; the path of an input.
    pub value: Option<OsString>,
}

impl Arg {
    /// Which option it is, if the tables know it.
    pub fn id(&self) -> Option<Id> {
        match self.what {
            What::Known(row) => Some(row.id),
            _ => None,
        }
    }

    /// Whether it brings a file or library into the link.
    pub fn is_input(&self) -> bool {
        match self.what {
            What::Input => true,
            What::Known(row) if row.id == Id::LinkWholeArchive => self.value.is_some(),
            What::Known(row) => row.id == Id::Library,
            What::Separator | What::Unknown => false,
        }
    }
}

/// The user's command line, without the program's name, response files expanded.
#[derive(Debug, Clone)]
pub struct Ledger {
    role: Role,
    mode: Mode,
    tokens: Vec<OsString>,
    args: Vec<Arg>,
}

impl Ledger {
    /// Reads a command line (`argv` without the program's name): expands `@file`s, then tags every token.
    pub fn read(role: Role, argv: Vec<OsString>) -> Result<Ledger> {
        let style = response::style_of(role, &argv);
        Ledger::parse(role, response::expand(argv, style)?)
    }

    /// Tags the tokens of a command line without response files.
    pub fn parse(role: Role, tokens: Vec<OsString>) -> Result<Ledger> {
        let mode = mode_of(&tokens);
        let mut args = Vec::new();
        let mut parser = Parser {
            role,
            dialect: dialect_of(role, &tokens),
            old: false,
            tokens: &tokens,
        };
        let mut at = 0;
        if let Some(separator) = parser.separator(&mut args) {
            args.push(Arg {
                what: What::Separator,
                tokens: separator..separator + 1,
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
        Ok(Ledger {
            role,
            mode,
            tokens,
            args,
        })
    }

    /// Whose command line this is.
    pub fn role(&self) -> Role {
        self.role
    }

    /// Help, version or a link.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Every token, as the user gave it.
    pub fn tokens(&self) -> &[OsString] {
        &self.tokens
    }

    /// Every argument, in order; their token ranges cover all tokens without gap or overlap.
    pub fn args(&self) -> &[Arg] {
        &self.args
    }

    /// The host linker's arguments: the user's tokens minus ours, with `objects` after the last output option, or before the
    /// first input where there is none (decision 1), and `libraries` after the last input.
    pub fn host_line(&self, objects: &[OsString], libraries: &[OsString]) -> Vec<OsString> {
        let (objects_at, libraries_at) = self.places();
        let mut line = Vec::with_capacity(self.tokens.len() + objects.len() + libraries.len());
        for (index, arg) in self.args.iter().enumerate() {
            if index == objects_at {
                line.extend_from_slice(objects);
            }
            if index == libraries_at {
                line.extend_from_slice(libraries);
            }
            if arg.route != Route::Wrapper {
                line.extend_from_slice(&self.tokens[arg.tokens.clone()]);
            }
        }
        if objects_at >= self.args.len() {
            line.extend_from_slice(objects);
        }
        if libraries_at >= self.args.len() {
            line.extend_from_slice(libraries);
        }
        line
    }

    /// Before which argument the wrapper objects go, and before which the extra libraries.
    fn places(&self) -> (usize, usize) {
        let (mut output, mut link_output, mut first_input) = (None, None, None);
        let mut libraries = self.args.len();
        let mut walk = Walk::new(&self.args);
        for (index, arg) in self.args.iter().enumerate() {
            // An object between --start-lib and --end-lib is dropped unless something pulls it, and one after -b binary is
            // data: a wrapper object must be in neither place.
            let takes_objects = |walk: &Walk| !walk.state.lazy && !walk.state.binary;
            if arg.is_input() {
                first_input = first_input.or(Some((index, takes_objects(&walk))));
            }
            walk.step(arg);
            match arg.id() {
                Some(Id::Output) => output = Some((index + 1, takes_objects(&walk))),
                Some(Id::LinkOut) => link_output = Some((index + 1, takes_objects(&walk))),
                _ => {}
            }
            let closes = matches!(arg.id(), Some(Id::EndLib | Id::EndGroup));
            if arg.is_input() || closes {
                libraries = index + 1;
            }
        }
        let clean = |place: Option<(usize, bool)>| {
            place.filter(|(_, clean)| *clean).map(|(index, _)| index)
        };
        let objects = clean(output.or(link_output)).or_else(|| clean(first_input));
        let nothing_to_precede = output.or(link_output).or(first_input).is_none();
        (
            objects.unwrap_or(if nothing_to_precede {
                self.args.len()
            } else {
                0
            }),
            libraries,
        )
    }
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

/// link.exe's spelling, when the host is a Windows with its toolchain or the host linker is one of its kind.
fn dialect_of(role: Role, tokens: &[OsString]) -> Dialect {
    let is_link_exe = tokens.iter().any(|token| {
        let token = token.to_string_lossy();
        let linker = token
            .strip_prefix("--linker-path=")
            .or_else(|| token.strip_prefix("--offld-linker="));
        if let Some(linker) = linker {
            let name = linker
                .rsplit(['/', '\\'])
                .next()
                .unwrap_or_default()
                .to_ascii_lowercase();
            let stem = name.strip_suffix(".exe").unwrap_or(&name);
            return stem == "link" || stem == "lld-link" || stem.starts_with("lld-link-");
        }
        let triple = token.strip_prefix("--host-triple=").unwrap_or_default();
        role == Role::Wrapper && is_msvc(triple)
    });
    if is_link_exe {
        Dialect::LinkExe
    } else {
        Dialect::Gnu
    }
}

/// Whether a triple is a Windows with Microsoft's linker: `-windows` without an environment means that one.
fn is_msvc(triple: &str) -> bool {
    triple.contains("-windows")
        && !["gnu", "cygnus", "itanium", "elf", "macho"]
            .iter()
            .any(|e| triple.contains(e))
}

fn to_os(bytes: &[u8]) -> OsString {
    OsString::from_vec(bytes.to_vec())
}

/// How a token spells an option.
enum Spelling {
    /// Complete in one token.
    Alone(&'static Row),
    /// With its operand in the same token.
    Joined(&'static Row, OsString),
    /// The next token is its operand.
    Separate(&'static Row),
}

struct Parser<'a> {
    role: Role,
    dialect: Dialect,
    /// Before the separator of LLVM 14 to 18, where a few more of our options are known.
    old: bool,
    tokens: &'a [OsString],
}

impl Parser<'_> {
    /// The place of the `--` before which only our options stand, and those options. Clang 14 to 18 write it; LLVM 22 knows
    /// no separator, so any other `--` is the linker's.
    fn separator(&mut self, args: &mut Vec<Arg>) -> Option<usize> {
        let place = self.tokens.iter().position(|token| token == "--")?;
        if self.role != Role::Wrapper {
            return None;
        }
        self.old = true;
        let mut ours = Vec::new();
        let mut at = 0;
        while at < place {
            match self.arg(at) {
                Ok(arg) if arg.route == Route::Wrapper && arg.tokens.end <= place => {
                    at = arg.tokens.end;
                    ours.push(arg);
                }
                _ => break,
            }
        }
        self.old = false;
        if at < place {
            return None;
        }
        *args = ours;
        Some(place)
    }

    /// The argument that starts at token `at`.
    fn arg(&self, at: usize) -> Result<Arg> {
        let token = &self.tokens[at];
        let one = |what, route, value| {
            Ok(Arg {
                what,
                tokens: at..at + 1,
                route,
                value,
            })
        };
        match self.spelling(at) {
            Some(Spelling::Alone(row)) => one(What::Known(row), row.route, None),
            Some(Spelling::Joined(row, value)) => one(What::Known(row), row.route, Some(value)),
            Some(Spelling::Separate(row)) => match self.tokens.get(at + 1) {
                Some(value) => Ok(Arg {
                    what: What::Known(row),
                    tokens: at..at + 2,
                    route: row.route,
                    value: Some(value.clone()),
                }),
                // The linker says itself what is wrong with its own options, but without an output there is no link to do.
                None if row.route == Route::Wrapper || row.id == Id::Output => {
                    Err(anyhow!("{}: missing argument", token.to_string_lossy()))
                }
                None => one(What::Unknown, Route::Host, None),
            },
            None if self.is_input(token) => one(What::Input, Route::Both, Some(token.clone())),
            None => one(What::Unknown, Route::Host, None),
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
        for row in self.rows(name, dashes) {
            let found = match (row.shape, joined) {
                (Shape::Flag | Shape::OptionalEquals, None) => Spelling::Alone(row),
                (Shape::EitherNumber, None) if !number_next => Spelling::Alone(row),
                (Shape::Separate | Shape::Either | Shape::EitherNumber, None) => {
                    Spelling::Separate(row)
                }
                (
                    Shape::Equals | Shape::Either | Shape::EitherNumber | Shape::OptionalEquals,
                    Some(value),
                ) => Spelling::Joined(row, to_os(value)),
                _ => continue,
            };
            return Some(found);
        }
        let [letter, rest @ ..] = body else {
            return None;
        };
        if dashes == Dashes::Two {
            return None;
        }
        let row = self
            .rows(std::slice::from_ref(letter), dashes)
            .find(|row| row.shape.is_letter())?;
        Some(match rest {
            [] if row.shape == Shape::LetterNumber && !number_next => Spelling::Alone(row),
            [] => Spelling::Separate(row),
            value => Spelling::Joined(row, to_os(value)),
        })
    }

    /// The rows of a name that hold in this place, ours before the linker's.
    fn rows(&self, name: &[u8], dashes: Dashes) -> impl Iterator<Item = &'static Row> {
        let (role, old) = (self.role, self.old);
        let host = if self.dialect == Dialect::Gnu {
            host_rows()
        } else {
            &[]
        };
        let both = table::named(own_rows(), name)
            .iter()
            .chain(table::named(host, name));
        both.filter(move |row| row.dashes.accept(dashes) && row.scope.holds(role, old))
    }

    /// `/out:P`, `-out:P`, `/?out:P` and `-?out:P`: LLVM's four prefixes. Lower case unless the linker is link.exe.
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
        match (row.shape, value) {
            (Shape::Colon | Shape::OptionalColon, Some(value)) => {
                Some(Spelling::Joined(row, to_os(value)))
            }
            (Shape::OptionalColon, None) => Some(Spelling::Alone(row)),
            (Shape::Flag, None) if self.dialect == Dialect::LinkExe => Some(Spelling::Alone(row)),
            _ => None,
        }
    }
}
