//! LLVM's command line engine, as the container tools' users know it (docs/spec/containers.md 1): named options with one dash or
//! two, values after `=` or in the next word, LLVM's messages for what is wrong, and its help text. A tool is a table (`Tool`);
//! what was given is a `Line`, in which positions are kept.

mod help;
mod parse;
#[cfg(test)]
mod tests;

use std::ffi::{OsStr, OsString};
use std::fmt;

pub use parse::parse;

/// A tool's command line.
#[derive(Debug)]
pub struct Tool {
    /// What it is called by where `argv[0]` does not say.
    pub name: &'static str,
    /// The first paragraph of its help, without `OVERVIEW: `.
    pub overview: &'static str,
    /// What its usage line says after `[options]`; empty for nothing.
    pub usage: &'static str,
    /// What the help calls its options: `clang-offload-bundler options`.
    pub category: &'static str,
    /// Its options, in any order.
    pub options: &'static [Opt],
    /// What stands on the line by itself.
    pub positional: Positional,
    /// What `--version` prints.
    pub version: fn() -> String,
}

/// One option.
#[derive(Debug)]
pub struct Opt {
    /// Its name, without dashes.
    pub name: &'static str,
    /// What it takes.
    pub kind: Kind,
    /// What the help calls its value: `<string>`; empty for a flag.
    pub value: &'static str,
    /// The help; further lines are indented as they are here. No help tells of an option without one.
    pub help: &'static str,
    /// Whether the tool cannot work without it.
    pub required: bool,
    /// Whether only `--help-hidden` tells of it.
    pub hidden: bool,
}

impl Opt {
    /// An option that need not be given, and that the help lists.
    pub const fn new(name: &'static str, kind: Kind, value: &'static str, help: &'static str) -> Opt {
        Opt { name, kind, value, help, required: false, hidden: false }
    }

    /// The same, but the tool cannot work without it.
    pub const fn required(self) -> Opt {
        Opt { required: true, ..self }
    }

    /// The same, but only `--help-hidden` lists it.
    pub const fn hidden(self) -> Opt {
        Opt { hidden: true, ..self }
    }
}

/// What an option takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Nothing, or `=true`, `=0` and the like.
    Flag,
    /// A value; the last one given counts.
    Text,
    /// A number of 32 bits without a sign.
    Uint,
    /// A number of 32 bits with a sign.
    Int,
    /// A value, each time it is given.
    List,
    /// Values apart by commas, each time it is given.
    CommaList,
    /// One of these names, each with its help.
    Choice(&'static [(&'static str, &'static str)]),
}

/// How many words may stand on the line by themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Positional {
    /// None.
    None,
    /// At most one.
    One,
    /// One at least.
    Many,
}

/// What a command line asks for.
#[derive(Debug)]
pub enum Outcome {
    /// To print this (help, version) and do nothing else.
    Print(String),
    /// To do the tool's work.
    Run(Line),
}

/// What was given, in order; every value has the form its option wants.
#[derive(Debug)]
pub struct Line {
    given: Vec<(&'static str, Kind, OsString)>,
    help: String,
}

impl Line {
    /// Everything given: the option's name (empty for what stands by itself) and its value.
    pub fn given(&self) -> impl Iterator<Item = (&'static str, &OsStr)> {
        self.given.iter().map(|(name, _, value)| (*name, value.as_os_str()))
    }

    fn all(&self, name: &str) -> impl DoubleEndedIterator<Item = &OsStr> {
        self.given.iter().filter(move |(given, ..)| *given == name).map(|(_, _, value)| value.as_os_str())
    }

    /// How often an option was given.
    pub fn count(&self, name: &str) -> usize {
        self.all(name).count()
    }

    /// The value of an option; the last one, where there are several.
    pub fn text(&self, name: &str) -> Option<&OsStr> {
        self.all(name).next_back()
    }

    /// What a flag was set to last, if it was given.
    pub fn flag(&self, name: &str) -> Option<bool> {
        self.text(name).and_then(parse::boolean)
    }

    /// The number an option was set to last.
    pub fn uint(&self, name: &str) -> Option<u32> {
        self.text(name).and_then(parse::number).and_then(|number| u32::try_from(number).ok())
    }

    /// The number an option was set to last.
    pub fn int(&self, name: &str) -> Option<i32> {
        self.text(name).and_then(parse::number).and_then(|number| i32::try_from(number).ok())
    }

    /// All values of an option; those of a comma list one by one (`-targets=` is one empty value).
    pub fn list(&self, name: &str) -> Vec<&OsStr> {
        let values = self.given.iter().filter(|(given, ..)| *given == name);
        values
            .flat_map(|(_, kind, value)| if *kind == Kind::CommaList { parse::commas(value) } else { vec![value.as_os_str()] })
            .collect()
    }

    /// What stands on the line by itself.
    pub fn positionals(&self) -> Vec<&OsStr> {
        self.list("")
    }

    /// The text of `--help`, for tools that print it when there is nothing to do.
    pub fn help(&self) -> &str {
        &self.help
    }
}

/// A command line that LLVM's engine refuses: lines that are printed as they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The lines.
    pub lines: Vec<String>,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.lines.join("\n"))
    }
}

impl std::error::Error for Refused {}
