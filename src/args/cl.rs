//! Command lines with the rules of LLVM's `cl::opt`, for the drop-in replacements of LLVM's
//! container tools (docs/spec/containers.md 1): named options with one dash or two, values after
//! `=` or in the next argument, LLVM's error messages and help text. A table (`ToolSpec`) describes
//! a tool; a `ParsedLine` contains the given options, in order.

mod parse;
#[cfg(test)]
mod tests;

use std::ffi::{OsStr, OsString};
use std::fmt;

pub(crate) use parse::parse;

/// The description of a tool's command line.
#[derive(Debug)]
pub(crate) struct ToolSpec {
    /// The name used in messages if `argv[0]` is empty.
    pub name: &'static str,
    /// The first paragraph of its help, without `OVERVIEW: `.
    pub overview: &'static str,
    /// The text after `[options]` in its usage line; may be empty.
    pub usage: &'static str,
    /// The heading above its options in the help: `clang-offload-bundler options`.
    pub category: &'static str,
    /// Its options, in any order.
    pub options: &'static [Opt],
    /// The number of its positional arguments.
    pub positional: Positional,
    /// Returns the text of `--version`.
    pub version: fn() -> String,
}

impl ToolSpec {
    /// Every option as the help spells it, with its help text, including hidden options and those
    /// that all tools have.
    pub(crate) fn listed(&self) -> Vec<(String, String)> {
        listed(self)
    }
}

#[derive(Debug)]
pub(crate) struct Opt {
    /// The name, without dashes.
    pub name: &'static str,
    /// The form of its value.
    pub kind: Kind,
    /// The placeholder of its value in the help: `<string>`; empty for a flag.
    pub value: &'static str,
    /// The help text; further lines keep their indentation. Without a text, the help omits the
    /// option.
    pub help: &'static str,
    /// Whether a missing option is an error.
    pub required: bool,
    /// Whether only `--help-hidden` lists it.
    pub hidden: bool,
}

impl Opt {
    /// Creates an optional option that the help lists.
    pub(crate) const fn new(
        name: &'static str,
        kind: Kind,
        value: &'static str,
        help: &'static str,
    ) -> Opt {
        Opt {
            name,
            kind,
            value,
            help,
            required: false,
            hidden: false,
        }
    }

    /// The same option, but required.
    pub(crate) const fn required(self) -> Opt {
        Opt {
            required: true,
            ..self
        }
    }

    /// The same option, listed only by `--help-hidden`.
    pub(crate) const fn hidden(self) -> Opt {
        Opt {
            hidden: true,
            ..self
        }
    }
}

/// The form of an option's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// No value, or a boolean: `=true`, `=0`.
    Flag,
    /// Text. The last value counts.
    Text,
    /// An unsigned number of 32 bits.
    Uint,
    /// A signed number of 32 bits.
    Int,
    /// Text. All values count.
    List,
    /// Texts separated by commas. All values count.
    CommaList,
    /// One of these names; each has a help text.
    Choice(&'static [(&'static str, &'static str)]),
}

/// The number of positional arguments that a tool accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Positional {
    None,
    /// At most one.
    One,
    /// At least one.
    Many,
}

/// The action that a command line requests.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// Print this text (help, version) and exit.
    Print(String),
    /// Do the tool's work.
    Run(ParsedLine),
}

/// The arguments of a valid command line, in order. Every value has the form that its option
/// requires.
#[derive(Debug)]
pub(crate) struct ParsedLine {
    given: Vec<(&'static str, Kind, OsString)>,
    help: String,
}

impl ParsedLine {
    /// All arguments in order: the option's name (empty for a positional argument) and the value.
    pub(crate) fn given(&self) -> impl Iterator<Item = (&'static str, &OsStr)> {
        self.given
            .iter()
            .map(|(name, _, value)| (*name, value.as_os_str()))
    }

    fn all(&self, name: &str) -> impl DoubleEndedIterator<Item = &OsStr> {
        self.given
            .iter()
            .filter(move |(given, ..)| *given == name)
            .map(|(_, _, value)| value.as_os_str())
    }

    /// The number of times that an option was given.
    pub(crate) fn count(&self, name: &str) -> usize {
        self.all(name).count()
    }

    /// The last value of an option.
    pub(crate) fn text(&self, name: &str) -> Option<&OsStr> {
        self.all(name).next_back()
    }

    /// The last value of a flag, if it was given.
    pub(crate) fn flag(&self, name: &str) -> Option<bool> {
        self.text(name).and_then(parse::boolean)
    }

    /// The last value of an unsigned number option.
    pub(crate) fn uint(&self, name: &str) -> Option<u32> {
        self.text(name)
            .and_then(parse::number)
            .and_then(|number| u32::try_from(number).ok())
    }

    /// The last value of a signed number option.
    pub(crate) fn int(&self, name: &str) -> Option<i32> {
        self.text(name)
            .and_then(parse::number)
            .and_then(|number| i32::try_from(number).ok())
    }

    /// All values of an option, with comma lists split (`-targets=` is one empty value).
    pub(crate) fn list(&self, name: &str) -> Vec<&OsStr> {
        let values = self.given.iter().filter(|(given, ..)| *given == name);
        values
            .flat_map(|(_, kind, value)| {
                if *kind == Kind::CommaList {
                    parse::commas(value)
                } else {
                    vec![value.as_os_str()]
                }
            })
            .collect()
    }

    pub(crate) fn positionals(&self) -> Vec<&OsStr> {
        self.list("")
    }

    /// The text of `--help`, for tools that print it if the command line requests no work.
    pub(crate) fn help(&self) -> &str {
        &self.help
    }
}

/// The error for a command line that LLVM's parser would reject. The lines are printed unchanged,
/// without `error:`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refused {
    /// The messages, each with the program's name and one or more lines.
    pub lines: Vec<String>,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.lines.join("\n"))
    }
}

impl std::error::Error for Refused {}

// The help text of a tool, in LLVM's layout.

/// One option in the help: the left column and the help text.
struct HelpRow {
    name: &'static str,
    left: String,
    help: &'static str,
    choices: &'static [(&'static str, &'static str)],
}

const GENERIC: [(&str, &str, bool); 7] = [
    (
        "help",
        "Display available options (--help-hidden for more)",
        false,
    ),
    ("help-hidden", "Display all available options", true),
    (
        "help-list",
        "Display list of available options (--help-list-hidden for more)",
        false,
    ),
    (
        "help-list-hidden",
        "Display list of all available options",
        true,
    ),
    (
        "print-all-options",
        "Print all option values after command line parsing",
        true,
    ),
    (
        "print-options",
        "Print non-default options after command line parsing",
        true,
    ),
    ("version", "Display the version of this program", false),
];

/// Formats the text of `--help`. `hidden` adds the hidden options (`--help-hidden`); `flat` omits
/// the headings (`--help-list`).
fn help_text(tool: &ToolSpec, program: &str, hidden: bool, flat: bool) -> String {
    let generic: Vec<HelpRow> = GENERIC
        .into_iter()
        .filter(|(_, _, is_hidden)| hidden || !is_hidden)
        .map(|(name, help, _)| HelpRow {
            name,
            left: format!("--{name}"),
            help,
            choices: &[],
        })
        .collect();
    let mut own: Vec<HelpRow> = tool
        .options
        .iter()
        .filter(|option| (hidden || !option.hidden) && !option.help.is_empty())
        .map(row)
        .collect();
    own.sort_by_key(|row| row.name);
    let rights = own
        .iter()
        .flat_map(|row| row.choices)
        .map(|(name, _)| name.len() + 3);
    let width = generic
        .iter()
        .chain(&own)
        .map(|row| row.left.len())
        .chain(rights)
        .max()
        .unwrap_or(0);

    let usage = [" ", tool.usage].concat();
    let mut text = format!(
        "OVERVIEW: {}\n\nUSAGE: {program} [options]{}\n\nOPTIONS:\n",
        tool.overview,
        usage.trim_end()
    );
    if flat {
        own.extend(
            generic
                .into_iter()
                .filter(|row| hidden || row.name != "help-list"),
        );
        own.sort_by_key(|row| row.name);
        own.iter().for_each(|row| push(&mut text, row, width));
        return text;
    }
    text.push_str("\nGeneric Options:\n\n");
    generic.iter().for_each(|row| push(&mut text, row, width));
    text.push_str(&format!("\n{}:\n\n", tool.category));
    own.iter().for_each(|row| push(&mut text, row, width));
    text
}

/// Every option of `tool` and the generic ones, with their help texts.
fn listed(tool: &ToolSpec) -> Vec<(String, String)> {
    let generic = GENERIC
        .into_iter()
        .map(|(name, help, _)| (format!("--{name}"), help.to_owned()));
    let mut all: Vec<(String, String)> = tool
        .options
        .iter()
        .map(row)
        .map(|row| (row.left, with_choices(row.help, row.choices)))
        .collect();
    all.extend(generic);
    all.sort();
    all
}

fn with_choices(help: &str, choices: &[(&str, &str)]) -> String {
    let choices: String = choices
        .iter()
        .map(|(name, help)| format!("\n{name}: {help}"))
        .collect();
    match format!("{help}{choices}") {
        // The option is missing from LLVM's help.
        text if text.is_empty() => "Accepted for compatibility with LLVM's tool.".to_owned(),
        text => text,
    }
}

fn row(option: &Opt) -> HelpRow {
    let (dashes, between) = if option.name.len() == 1 {
        ("-", " ")
    } else {
        ("--", "=")
    };
    let value = if option.value.is_empty() {
        String::new()
    } else {
        format!("{between}{}", option.value)
    };
    let choices = if let Kind::Choice(choices) = option.kind {
        choices
    } else {
        &[]
    };
    HelpRow {
        name: option.name,
        left: format!("{dashes}{}{value}", option.name),
        help: option.help,
        choices,
    }
}

fn push(text: &mut String, row: &HelpRow, width: usize) {
    let mut lines = row.help.lines();
    text.push_str(&format!(
        "  {:<width$} - {}\n",
        row.left,
        lines.next().unwrap_or_default()
    ));
    for line in lines {
        text.push_str(&format!("  {:<width$}   {line}\n", ""));
    }
    for (name, help) in row.choices {
        text.push_str(&format!(
            "    ={:<fill$} -   {help}\n",
            name,
            fill = width - 3
        ));
    }
}
