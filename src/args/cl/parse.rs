//! Parses a tool's arguments into a `ParsedLine`, with LLVM's error messages. Reports all errors of
//! a command line, not only the first.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::{Kind, Opt, Outcome, ParsedLine, Positional, Refused, ToolSpec, help_text};
use offld_system::response::{self, Style};

/// Parses `args` after expanding response files. `called` is `argv[0]`, which `args` does not
/// contain.
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
pub(super) fn boolean(value: &OsStr) -> Option<bool> {
    match value.to_str()? {
        "" | "true" | "TRUE" | "True" | "1" => Some(true),
        "false" | "FALSE" | "False" | "0" => Some(false),
        _ => None,
    }
}

/// Parses a number with LLVM's rules: decimal, or another base after `0x`, `0b`, `0o` or `0`.
pub(super) fn number(value: &OsStr) -> Option<i64> {
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
pub(super) fn commas(value: &OsStr) -> Vec<&OsStr> {
    value
        .as_bytes()
        .split(|byte| *byte == b',')
        .map(OsStr::from_bytes)
        .collect()
}
