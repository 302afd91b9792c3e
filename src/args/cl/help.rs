//! The help text of a tool, in LLVM's layout.

use super::{Kind, Opt, ToolSpec};

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
pub(super) fn text(tool: &ToolSpec, program: &str, hidden: bool, flat: bool) -> String {
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
pub(super) fn listed(tool: &ToolSpec) -> Vec<(String, String)> {
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
