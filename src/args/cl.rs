//! Command lines with the rules of LLVM's `cl::opt`, for the drop-in replacements of LLVM's
//! container tools (docs/spec/containers.md 1): named options with one dash or two, values after
//! `=` or in the next argument, LLVM's error messages and help text. A table (`ToolSpec`) describes
//! a tool; a `ParsedLine` contains the given options, in order.

#[cfg(test)]
mod tests;

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use offld_system::response::{self, Style};
use offld_system::shell::Shell;

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
        self.text(name).and_then(boolean)
    }

    /// The last value of an unsigned number option.
    pub(crate) fn uint(&self, name: &str) -> Option<u32> {
        self.text(name)
            .and_then(number)
            .and_then(|number| u32::try_from(number).ok())
    }

    /// The last value of a signed number option.
    pub(crate) fn int(&self, name: &str) -> Option<i32> {
        self.text(name)
            .and_then(number)
            .and_then(|number| i32::try_from(number).ok())
    }

    /// All values of an option, with comma lists split (`-targets=` is one empty value).
    pub(crate) fn list(&self, name: &str) -> Vec<&OsStr> {
        let values = self.given.iter().filter(|(given, ..)| *given == name);
        values
            .flat_map(|(_, kind, value)| {
                if *kind == Kind::CommaList {
                    commas(value)
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

/// Parses `args` after expanding response files, and reports all errors, not only the first.
/// `called` is `argv[0]`, which `args` does not contain.
pub(crate) fn parse(tool: &ToolSpec, called: &str, args: &[OsString]) -> anyhow::Result<Outcome> {
    let args = response::expand(args.to_vec(), Style::Gnu)?;
    let program = Path::new(called)
        .file_name()
        .map_or(tool.name.into(), OsStr::to_string_lossy)
        .into_owned();
    let mut parser = Parser {
        tool,
        called,
        program,
        given: Vec::new(),
        faults: Vec::new(),
        wants_help: false,
    };
    let mut rest = args.into_iter();
    let mut only_positionals = false;
    while let Some(arg) = rest.next() {
        if only_positionals || arg == "-" || !arg.as_bytes().starts_with(b"-") {
            parser.positional(arg);
        } else if arg == "--" {
            only_positionals = true;
        } else if let Some(print) = parser.option(&arg, &mut rest) {
            return Ok(Outcome::Print(print));
        }
    }
    parser.check_missing();
    // LLVM omits the headings if a tool prints its help without a request for it.
    let text = help_text(tool, &parser.program, false, true);
    if !parser.faults.is_empty() {
        return Err(Refused {
            lines: parser.faults,
        }
        .into());
    }
    if parser.wants_help {
        return Ok(Outcome::Print(text));
    }
    Ok(Outcome::Run(ParsedLine {
        given: parser.given,
        help: text,
    }))
}

struct Parser<'a> {
    tool: &'a ToolSpec,
    called: &'a str,
    program: String,
    given: Vec<(&'static str, Kind, OsString)>,
    faults: Vec<String>,
    wants_help: bool,
}

impl Parser<'_> {
    fn fault(&mut self, text: &str) {
        self.faults.push(format!("{}: {text}", self.program));
    }

    fn positional(&mut self, arg: OsString) {
        if self.tool.positional == Positional::None {
            self.unknown(&arg);
        } else {
            self.given.push(("", Kind::List, arg));
        }
    }

    fn unknown(&mut self, arg: &OsStr) {
        self.fault(&format!(
            "Unknown command line argument '{}'.  Try: '{} --help'",
            arg.to_string_lossy(),
            self.called
        ));
    }

    /// Parses an option. Returns the text to print for `--help` and similar options, which end
    /// parsing.
    fn option(&mut self, arg: &OsStr, rest: &mut impl Iterator<Item = OsString>) -> Option<String> {
        let bytes = arg.as_bytes();
        let bytes = bytes
            .strip_prefix(b"--")
            .or(bytes.strip_prefix(b"-"))
            .unwrap_or(bytes);
        let equals = bytes.iter().position(|byte| *byte == b'=');
        let (name, value) = match equals {
            Some(at) => (
                &bytes[..at],
                Some(OsStr::from_bytes(&bytes[at + 1..]).to_owned()),
            ),
            None => (bytes, None),
        };
        let name = String::from_utf8_lossy(name).into_owned();
        if self.is_generic(&name) {
            return self.generic(&name, value);
        }
        match self.tool.options.iter().find(|option| option.name == name) {
            Some(option) => self.known(option, value, rest),
            None => {
                let glued = |option: &&Opt| {
                    option.name.len() == 1
                        && option.kind != Kind::Flag
                        && name.starts_with(option.name)
                };
                if let Some(option) = self
                    .tool
                    .options
                    .iter()
                    .find(glued)
                    .filter(|_| !bytes.is_empty() && !arg.as_bytes().starts_with(b"--"))
                {
                    self.fault(&format!(
                        "for the -{} option: may not occur within a group!",
                        option.name
                    ));
                }
                self.unknown(arg);
                self.suggest(&name, value.as_deref());
            }
        }
        None
    }

    fn is_generic(&self, name: &str) -> bool {
        let generic = [
            "help",
            "help-hidden",
            "help-list",
            "help-list-hidden",
            "version",
            "print-options",
            "print-all-options",
            "h",
        ];
        generic.contains(&name) && !self.tool.options.iter().any(|option| option.name == name)
    }

    /// Parses an option that every tool has, such as `--help`. Returns the text to print, if any.
    fn generic(&mut self, name: &str, value: Option<OsString>) -> Option<String> {
        let set = match (name, &value) {
            (_, None) => true,
            (
                "help" | "help-hidden" | "help-list" | "help-list-hidden" | "version",
                Some(value),
            ) => {
                self.fault(&format!(
                    "for the --{name} option: does not allow a value! '{}' specified.",
                    value.to_string_lossy()
                ));
                return None;
            }
            (_, Some(value)) => boolean(value).unwrap_or_else(|| {
                self.not_boolean(name, value);
                false
            }),
        };
        let text = |hidden, flat| Some(help_text(self.tool, &self.program, hidden, flat));
        match name {
            "help" => text(false, false),
            "help-hidden" => text(true, false),
            "help-list" => text(false, true),
            "help-list-hidden" => text(true, true),
            "version" => Some((self.tool.version)()),
            // `print-options` and `print-all-options` print nothing, as in LLVM's release builds.
            "h" if set => {
                self.wants_help = true;
                None
            }
            _ => None,
        }
    }

    fn not_boolean(&mut self, name: &str, value: &OsStr) {
        let value = value.to_string_lossy();
        self.fault(&format!(
            "for the --{name} option: '{value}' is invalid value for boolean argument! Try 0 or 1"
        ));
    }

    fn known(
        &mut self,
        option: &Opt,
        value: Option<OsString>,
        rest: &mut impl Iterator<Item = OsString>,
    ) {
        let dashes = if option.name.len() == 1 { "-" } else { "--" };
        let name = format!("{dashes}{}", option.name);
        if option.kind == Kind::Flag {
            let value = value.unwrap_or_else(|| "1".into());
            if boolean(&value).is_none() {
                self.not_boolean(option.name, &value);
            }
            return self.given.push((option.name, option.kind, value));
        }
        let Some(value) = value.or_else(|| rest.next()) else {
            return self.fault(&format!("for the {name} option: requires a value!"));
        };
        let (shown, number) = (value.to_string_lossy().into_owned(), number(&value));
        match option.kind {
            Kind::Uint if number.is_none_or(|number| u32::try_from(number).is_err()) => {
                self.fault(&format!(
                    "for the {name} option: '{shown}' value invalid for uint argument!"
                ));
            }
            Kind::Int if number.is_none_or(|number| i32::try_from(number).is_err()) => {
                self.fault(&format!(
                    "for the {name} option: '{shown}' value invalid for integer argument!"
                ));
            }
            Kind::Choice(choices) if !choices.iter().any(|(choice, _)| *choice == shown) => {
                self.fault(&format!(
                    "for the {name} option: Cannot find option named '{shown}'!"
                ));
            }
            _ => {}
        }
        self.given.push((option.name, option.kind, value));
    }

    /// Suggests the option with the most similar name, if one is similar enough.
    fn suggest(&mut self, name: &str, value: Option<&OsStr>) {
        let name = name.trim_start_matches('-');
        let names = self
            .tool
            .options
            .iter()
            .filter(|option| !option.hidden)
            .map(|option| option.name)
            .chain(["help", "version"]);
        let nearest = names
            .map(|other| (strsim::levenshtein(name, other), other))
            .min_by_key(|(distance, _)| *distance);
        let Some((_, other)) =
            nearest.filter(|(distance, other)| *distance <= other.len().min(name.len()) / 2)
        else {
            return;
        };
        let dashes = if other.len() == 1 { "-" } else { "--" };
        let value = value
            .map(|value| format!("={}", value.to_string_lossy()))
            .unwrap_or_default();
        self.fault(&format!("Did you mean '{dashes}{other}{value}'?"));
    }

    /// Reports missing required options, and too few or too many positional arguments.
    fn check_missing(&mut self) {
        let count = self
            .given
            .iter()
            .filter(|(name, ..)| name.is_empty())
            .count();
        let more = |text: &str| format!("{text}: See: {} --help", self.called);
        match self.tool.positional {
            Positional::Many if count == 0 => {
                let more = more("Must specify at least 1 positional argument");
                self.fault(&format!(
                    "Not enough positional command line arguments specified!\n{more}"
                ));
            }
            Positional::One if count > 1 => {
                let more = more("Can specify at most 1 positional arguments");
                self.fault(&format!("Too many positional arguments specified!\n{more}"));
            }
            _ => {}
        }
        let mut missing: Vec<&Opt> = self
            .tool
            .options
            .iter()
            .filter(|option| option.required)
            .collect();
        missing.retain(|option| !self.given.iter().any(|(name, ..)| *name == option.name));
        for option in missing {
            let dashes = if option.name.len() == 1 { "-" } else { "--" };
            self.fault(&format!(
                "for the {dashes}{} option: must be specified at least once!",
                option.name
            ));
        }
    }
}

/// Parses the value of a flag; `None` if it is not a boolean.
fn boolean(value: &OsStr) -> Option<bool> {
    match value.to_str()? {
        "" | "true" | "TRUE" | "True" | "1" => Some(true),
        "false" | "FALSE" | "False" | "0" => Some(false),
        _ => None,
    }
}

/// Parses a number with LLVM's rules: decimal, or another base after `0x`, `0b`, `0o` or `0`.
fn number(value: &OsStr) -> Option<i64> {
    let text = value.to_str()?;
    let (negative, text) = text
        .strip_prefix('-')
        .map_or((false, text), |rest| (true, rest));
    let lower = text.to_ascii_lowercase();
    let (digits, base) = match lower.as_bytes() {
        [b'0', b'x', ..] => (&lower[2..], 16),
        [b'0', b'b', ..] => (&lower[2..], 2),
        [b'0', b'o', ..] => (&lower[2..], 8),
        [b'0', digit, ..] if digit.is_ascii_digit() => (&lower[1..], 8),
        _ => (lower.as_str(), 10),
    };
    // `from_str_radix` would accept a sign here.
    let digits = Some(digits).filter(|digits| digits.chars().all(|digit| digit.is_digit(base)))?;
    let number = i64::from_str_radix(digits, base).ok()?;
    Some(if negative { -number } else { number })
}

/// Splits a comma list into its values.
fn commas(value: &OsStr) -> Vec<&OsStr> {
    value
        .as_bytes()
        .split(|byte| *byte == b',')
        .map(OsStr::from_bytes)
        .collect()
}

/// Prints the help or version of a tool to stdout.
pub(crate) fn print(text: &str, shell: &Shell) {
    // A closed pipe is not an error.
    let _ = std::io::stdout().write_all(shell.stdout_style().prose(text).as_bytes());
}

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
