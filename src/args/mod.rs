//! The command line of a link, as a list of the user's tokens. Each token is tagged with its
//! meaning and its recipient. The list never changes: the host linker gets the user's tokens as
//! written, without offld's options and with the `LineChanges`. `settings` turns the tags into
//! values. Nothing here opens an input, searches for a library or runs a program.

pub(crate) mod cl;
pub(crate) mod gnu_ld;
pub mod link_exe;
mod parse;
pub mod settings;
mod table;
mod table_ld;
mod target_arg;
#[cfg(test)]
mod tests;
pub(crate) mod values;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::path::PathBuf;

pub use link_exe::Dialect;
use offld_system::response::{self, Style};
use offload_formats::error::Error;
use settings::Walk;
pub use table::{Dashes, Id, OptionRow, Route, Scope, Shape, own_rows};
pub use table_ld::{host_rows, link_exe_rows};
pub use target_arg::{TargetArg, is_llvm_arch};

/// The tool whose command line is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Role {
    /// `clang-linker-wrapper`: offld's options, then the host linker's arguments.
    #[default]
    Wrapper,
    /// `ld.offld`: linker arguments and offld's options in any order.
    Ld,
}

/// Returns the style of the response files on a command line: Windows rules for a link with
/// Microsoft's linker, unless lld's option `--rsp-quoting=` sets the style.
pub(crate) fn response_style(role: Role, argv: &[OsString]) -> Style {
    let mut style = Style::Gnu;
    for token in argv {
        let token = token.to_string_lossy();
        let triple = token.strip_prefix("--host-triple=").unwrap_or_default();
        match token.as_ref() {
            "--rsp-quoting=windows" => return Style::Windows,
            "--rsp-quoting=posix" => return Style::Gnu,
            _ if role == Role::Wrapper && link_exe::is_msvc(triple) => style = Style::Windows,
            _ => {}
        }
    }
    style
}

/// Returns `option` with the `value` behind it, as one argument.
pub(crate) fn joined(option: &str, value: impl AsRef<OsStr>) -> OsString {
    let mut joined = OsString::from(option);
    joined.push(value);
    joined
}

/// The request that a command line makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// Print offld's help. `--help` requests it only as the sole argument: on a link's command
    /// line, the option belongs to the linker (docs/spec/faults.md F23).
    Help {
        /// `--help-hidden`: also lists options of earlier releases.
        hidden: bool,
    },
    /// Print offld's version, which `--version` requests only as the sole argument.
    Version,
    /// A link.
    Link,
}

/// The meaning of an argument.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum ArgKind {
    /// An option with a row in the tables.
    Known(&'static OptionRow),
    /// The `--` that clang 14 to 16 places between the wrapper's options and the linker's
    /// arguments.
    Separator,
    /// A file.
    Input,
    /// Any other argument: an option that is in no table, a `--` that is not the separator, `-`, an
    /// empty argument.
    Unknown,
}

/// One argument: an input, or an option with its operand.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Arg {
    /// Its meaning.
    pub kind: ArgKind,
    /// Its tokens, as a range of [`ArgumentList::tokens`].
    pub tokens: Range<usize>,
    /// Its recipients.
    pub route: Route,
    /// The operand of an option, from the same token or the next; the path of an input.
    pub value: Option<OsString>,
}

impl Arg {
    /// The option, if the tables have it.
    pub fn id(&self) -> Option<Id> {
        match self.kind {
            ArgKind::Known(row) => Some(row.id),
            _ => None,
        }
    }

    /// Whether the argument brings a file or a library into the link.
    pub fn is_input(&self) -> bool {
        match self.kind {
            ArgKind::Input => true,
            ArgKind::Known(row) if row.id == Id::LinkWholeArchive => self.value.is_some(),
            ArgKind::Known(row) => row.id == Id::Library,
            ArgKind::Separator | ArgKind::Unknown => false,
        }
    }
}

/// The user's command line, without the program's name, response files expanded.
#[derive(Debug, Clone)]
pub struct ArgumentList {
    role: Role,
    mode: Mode,
    dialect: Dialect,
    given: Vec<OsString>,
    response_files: Vec<PathBuf>,
    tokens: Vec<OsString>,
    args: Vec<Arg>,
}

/// Changes of a command line for the host link.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LineChanges<'c> {
    /// The output that replaces the user's.
    pub output: Option<&'c OsStr>,
    /// Objects to insert where LLVM's wrapper inserts its own.
    pub objects: &'c [OsString],
    /// Whether the objects must precede all inputs, because they need archive members.
    pub objects_first: bool,
    /// Libraries to insert after the last input.
    pub libraries: &'c [OsString],
    /// Copies that replace inputs, by the token that names each input.
    pub copies: Option<&'c BTreeMap<usize, PathBuf>>,
}

impl ArgumentList {
    /// Reads a command line (`argv` without the program's name): expands `@file`s, then tags every
    /// token.
    pub fn read(role: Role, argv: Vec<OsString>) -> Result<ArgumentList, Error> {
        let style = response_style(role, &argv);
        let given = argv.clone();
        let (tokens, response_files) =
            response::expand_with_files(argv, style).map_err(Error::in_line)?;
        Ok(ArgumentList {
            given,
            response_files,
            ..ArgumentList::parse(role, tokens)?
        })
    }

    /// Tags the tokens of a command line without response files.
    pub fn parse(role: Role, tokens: Vec<OsString>) -> Result<ArgumentList, Error> {
        let (mode, dialect, args) = parse::arguments(role, &tokens).map_err(Error::in_line)?;
        Ok(ArgumentList {
            role,
            mode,
            dialect,
            given: tokens.clone(),
            response_files: Vec::new(),
            tokens,
            args,
        })
    }

    /// The tool whose command line was read.
    pub fn role(&self) -> Role {
        self.role
    }

    /// The request: help, version or a link.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The family of linkers whose syntax the host arguments use.
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// The command line before the expansion of response files.
    pub fn given(&self) -> &[OsString] {
        &self.given
    }

    /// The response files that were expanded.
    pub fn response_files(&self) -> &[PathBuf] {
        &self.response_files
    }

    /// Every token, as the user wrote it.
    pub fn tokens(&self) -> &[OsString] {
        &self.tokens
    }

    /// Every argument, in order. Their token ranges cover all tokens without gaps or overlaps.
    pub fn args(&self) -> &[Arg] {
        &self.args
    }

    /// The host linker's arguments: the user's tokens without offld's options, plus `objects` and
    /// `libraries`. Objects go after the last output option, or before the first input if there is
    /// none. Libraries go after the last input and after the objects.
    pub fn host_line(&self, objects: &[OsString], libraries: &[OsString]) -> Vec<OsString> {
        self.changed_host_line(&LineChanges {
            objects,
            libraries,
            ..LineChanges::default()
        })
    }

    /// The host linker's arguments with `changes`.
    pub(crate) fn changed_host_line(&self, changes: &LineChanges<'_>) -> Vec<OsString> {
        let LineChanges {
            output,
            objects,
            objects_first,
            libraries,
            copies,
        } = *changes;
        let (objects_at, libraries_at) = self.insertion_points(objects_first);
        let mut line = Vec::with_capacity(self.tokens.len() + objects.len() + libraries.len());
        for (index, arg) in self.args.iter().enumerate() {
            if index == objects_at {
                line.extend_from_slice(objects);
            }
            if index == libraries_at {
                line.extend_from_slice(libraries);
            }
            let copy = || {
                let mut tokens = arg.tokens.clone();
                tokens.find_map(|token| copies?.get(&token))
            };
            match output.filter(|_| arg.id() == Some(Id::Output)) {
                Some(_) => {}
                None if arg.route == Route::Wrapper => {}
                None => match copy() {
                    Some(copy) => line.push(copy.into()),
                    None => line.extend_from_slice(&self.tokens[arg.tokens.clone()]),
                },
            }
        }
        if objects_at >= self.args.len() {
            line.extend_from_slice(objects);
        }
        if libraries_at >= self.args.len() {
            line.extend_from_slice(libraries);
        }
        // If there are several output options, linkers use the last one.
        line.extend(
            output
                .into_iter()
                .flat_map(|output| ["-o".into(), output.to_owned()]),
        );
        line
    }

    /// The indices of the arguments before which the registration objects and the extra libraries
    /// are inserted.
    fn insertion_points(&self, objects_first: bool) -> (usize, usize) {
        let (mut output, mut link_output, mut first_input) = (None, None, None);
        let mut libraries = self.args.len();
        let mut walk = Walk::new(&self.args);
        for (index, arg) in self.args.iter().enumerate() {
            // The linker drops an unreferenced object between --start-lib and --end-lib, and treats
            // one after -b binary as data. A registration object must be in neither position.
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
        let clean = |position: Option<(usize, bool)>| {
            position.filter(|(_, clean)| *clean).map(|(index, _)| index)
        };
        let after_output = output.or(link_output);
        let is_late = |(at, _): &(usize, bool)| {
            objects_first && first_input.is_some_and(|(input, _)| input < *at)
        };
        let objects = clean(after_output.filter(|at| !is_late(at))).or_else(|| clean(first_input));
        let nothing_to_precede = after_output.or(first_input).is_none();
        let objects = objects.unwrap_or(if nothing_to_precede {
            self.args.len()
        } else {
            0
        });
        // The libraries define symbols that the objects use, and linkers search only libraries that
        // follow an object.
        (objects, libraries.max(objects))
    }
}
