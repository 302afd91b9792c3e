//! `offld man DIR`: writes manual pages. The pages of offld and its commands are generated from
//! their command lines. The pages of the emulated tools are generated from the option tables that
//! parse their command lines. All pages list the environment variables that apply. The topics of
//! `offld help` share one page.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::{Arg, Args, Command};
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, italic, roman};

use super::environment::{VARIABLES, Variable};
use super::own::command_of_width;
use super::topics::TOPICS;
use super::{EMULATED_TOOLS, EmulatedTool};
use offld_system::environment;
use offld_system::shell::Shell;

/// The options of `offld man`.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// Write the pages to this directory (created if missing)
    dir: PathBuf,
}

pub(super) fn run(options: Options, _shell: &Arc<Shell>) -> Result<()> {
    write(command_of_width(None), &options.dir)
}

fn write(command: Command, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)
        .with_context(|| format!("cannot create directory `{}`", folder.display()))?;
    let mut command = command;
    command.build();
    page(folder, "offld-topics", |out| {
        topics(&command).to_writer(out)
    })?;
    page(folder, "offld", |out| offld_page(&command, out))?;
    for own in command.get_subcommands() {
        let name = format!("offld-{}", own.get_name());
        let subs: Vec<&Command> = own
            .get_subcommands()
            .filter(|sub| sub.get_name() != "help")
            .collect();
        let sub_name = |sub: &Command| format!("{name}-{}", sub.get_name());
        let pages = subs.iter().map(|sub| sub_name(sub));
        let others = ["offld".to_owned(), "offld-topics".to_owned()]
            .into_iter()
            .chain(pages);
        page(folder, &name, |out| {
            command_page(
                own,
                &name,
                others,
                &|variable| command_reads(own.get_name(), variable),
                out,
            )
        })?;
        for sub in subs {
            let others = ["offld".to_owned(), name.clone()].into_iter();
            page(folder, &sub_name(sub), |out| {
                command_page(sub, &sub_name(sub), others, &|_| false, out)
            })?;
        }
    }
    for personality in EMULATED_TOOLS
        .iter()
        .filter(|personality| !personality.only_as_ld)
    {
        // The prefix `offld-` keeps `man clang-linker-wrapper` showing LLVM's own page.
        let name = personality.name;
        let name = if name.contains("offld") {
            name.to_owned()
        } else {
            format!("offld-{name}")
        };
        page(folder, &name, |out| {
            tool_page(personality, &name).to_writer(out)
        })?;
    }
    Ok(())
}

fn page(
    folder: &Path,
    name: &str,
    render: impl FnOnce(&mut Vec<u8>) -> std::io::Result<()>,
) -> Result<()> {
    let path = folder.join(format!("{name}.1"));
    let mut text = Vec::new();
    render(&mut text)?;
    let text = without_backticks(&String::from_utf8_lossy(&text));
    fs::write(&path, text).with_context(|| format!("cannot write `{}`", path.display()))
}

/// Formats the parts of each line of `page` between backticks in bold.
fn without_backticks(page: &str) -> String {
    let line = |line: &str| {
        let parts: Vec<&str> = line.split('`').collect();
        // A single backtick marks nothing.
        if parts.len().is_multiple_of(2) {
            return line.to_owned();
        }
        let formatted = parts.iter().enumerate().map(|(index, part)| {
            if index % 2 == 1 {
                format!("\\fB{part}\\fR")
            } else {
                (*part).to_owned()
            }
        });
        formatted.collect()
    };
    page.split_inclusive('\n').map(line).collect()
}

/// Whether `offld COMMAND` reads this environment variable.
fn command_reads(command: &str, variable: &Variable) -> bool {
    match command {
        "cache" => variable.name.contains("CACHE"),
        "check" => {
            variable.name == environment::OFFLD_NATIVE_ROOT || variable.name == "LD_LIBRARY_PATH"
        }
        "thinlto-distributor" => ["OFFLD_CACHE", "OFFLD_MEMORY", "MAKEFLAGS", "XDG_"]
            .iter()
            .any(|name| variable.name.starts_with(name)),
        "doctor" => {
            const ITS_OWN: [&str; 7] = [
                "LIBRARY_PATH",
                "OFFLD_CLANG",
                "OFFLD_LINKER",
                "OFFLD_LLVM",
                "OFFLD_LLVM_TIMEOUT",
                "PATH",
                "VIRTUAL_ENV",
            ];
            let is_of_cache = variable.name.starts_with("OFFLD_CACHE")
                && variable.name != environment::OFFLD_CACHE_LOG;
            is_of_cache
                || variable.name == environment::OFFLD_NATIVE_ROOT
                || ITS_OWN.contains(&variable.name)
        }
        "size" => variable.name == environment::OFFLD_NATIVE_ROOT,
        _ => false,
    }
}

/// Writes the page of offld itself.
fn offld_page(command: &Command, out: &mut Vec<u8>) -> std::io::Result<()> {
    let about = command
        .get_about()
        .map(ToString::to_string)
        .unwrap_or_default();
    let mut head = title("offld", "the offload linker");
    head.control("SH", ["SYNOPSIS"]);
    head.text([
        bold("offld"),
        roman(" "),
        italic("COMMAND"),
        roman(" ["),
        italic("ARGUMENT"),
        roman("...]"),
    ]);
    head.control("br", []);
    head.text([
        bold("offld"),
        roman(" "),
        italic("TOOL"),
        roman(" ["),
        italic("ARGUMENT"),
        roman("...]"),
    ]);
    head.control("SH", ["DESCRIPTION"])
        .text([roman(sentence(&about))]);
    head.control("SH", ["COMMANDS"]);
    for own in command.get_subcommands() {
        let about = own.get_about().map(ToString::to_string).unwrap_or_default();
        head.control("TP", [])
            .text([bold(own.get_name())])
            .text([roman(sentence(&about))]);
    }
    head.control("SH", ["TOOLS"]);
    head.text([
        roman(
            "offld acts as one of these tools if the executable or the first argument has the name of the tool: ",
        ),
        bold("offld ld ..."),
    ]);
    for EmulatedTool { name, about, .. } in &EMULATED_TOOLS {
        head.control("TP", [])
            .text([bold(*name)])
            .text([roman(*about)]);
    }
    head.to_writer(out)?;
    Man::new(command.clone()).render_options_section(out)?;
    let mut tail = Roff::new();
    tail.control("SH", ["EXIT STATUS"])
        .text([roman(EXIT_STATUS)]);
    add_environment(&mut tail, &|_| true);
    let own = command
        .get_subcommands()
        .map(|own| format!("offld-{}", own.get_name()));
    add_see_also(
        &mut tail,
        own.chain(["offld-topics".to_owned(), "ld.offld".to_owned()]),
    );
    tail.to_writer(out)
}

/// The text about exit statuses if a command's help has none.
const EXIT_STATUS: &str = "0, or 2 after an error.";

/// Writes the page of one of offld's commands. `others`: the pages for SEE ALSO; `wanted`: selects
/// the variables that it reads.
fn command_page(
    command: &Command,
    name: &str,
    others: impl Iterator<Item = String>,
    wanted: &dyn Fn(&Variable) -> bool,
    out: &mut Vec<u8>,
) -> std::io::Result<()> {
    let about = command
        .get_about()
        .map(ToString::to_string)
        .unwrap_or_default();
    let after = command
        .get_after_help()
        .map(ToString::to_string)
        .unwrap_or_default();
    let (mut status, mut examples) = (EXIT_STATUS.to_owned(), Vec::new());
    let mut head = title(name, &lowercase_first(&about));
    synopsis(&mut head, command, &name.replace('-', " "));
    head.control("SH", ["DESCRIPTION"])
        .text([roman(sentence(&about))]);
    for paragraph in after
        .split("\n\n")
        .filter(|paragraph| !paragraph.is_empty())
    {
        if let Some(text) = paragraph.strip_prefix("Exit status: ") {
            status = text.replace('\n', " ");
        } else if let Some(lines) = paragraph.strip_prefix("Examples:\n") {
            examples = lines
                .lines()
                .map(|line| line.strip_prefix("  ").unwrap_or(line))
                .collect();
        } else {
            head.control("PP", [])
                .text([roman(paragraph.replace('\n', " "))]);
        }
    }
    head.to_writer(out)?;
    Man::new(command.clone()).render_options_section(out)?;
    let mut tail = Roff::new();
    let subs = command
        .get_subcommands()
        .filter(|sub| sub.get_name() != "help");
    for (index, sub) in subs.enumerate() {
        if index == 0 {
            tail.control("SH", ["COMMANDS"]);
        }
        let about = sub.get_about().map(ToString::to_string).unwrap_or_default();
        tail.control("TP", [])
            .text([bold(sub.get_name())])
            .text([roman(sentence(&about))]);
    }
    tail.control("SH", ["EXIT STATUS"]).text([roman(status)]);
    add_environment(&mut tail, wanted);
    if !examples.is_empty() {
        tail.control("SH", ["EXAMPLES"]).control("nf", []);
        for line in examples {
            tail.text([roman(line)]);
        }
        tail.control("fi", []);
    }
    add_see_also(&mut tail, others);
    tail.to_writer(out)
}

/// The release date of this version.
const DATE: &str = env!("OFFLD_RELEASE_DATE");

/// A page's title line and its section NAME.
fn title(name: &str, about: &str) -> Roff {
    let mut page = Roff::new();
    page.control(
        "TH",
        [
            name,
            "1",
            // An empty argument needs quotes, which roff only adds to arguments with spaces.
            if DATE.is_empty() { "\"\"" } else { DATE },
            concat!("offld ", env!("CARGO_PKG_VERSION")),
            "offld manual",
        ],
    );
    page.control("SH", ["NAME"])
        .text([roman(format!("{name} - {about}"))]);
    page
}

/// Adds the section SYNOPSIS: every option with its value, required alternatives in braces, and the
/// operands.
fn synopsis(page: &mut Roff, command: &Command, words: &str) {
    let mut line = vec![bold(words)];
    let is_listed =
        |arg: &&Arg| !arg.is_hide_set() && !["help", "version"].contains(&arg.get_id().as_str());
    let args: Vec<&Arg> = command.get_arguments().filter(is_listed).collect();
    let group_of = |arg: &Arg| {
        command
            .get_groups()
            .find(|group| group.is_required_set() && group.get_args().any(|id| id == arg.get_id()))
    };
    for arg in args
        .iter()
        .filter(|arg| !arg.is_positional() && group_of(arg).is_none())
    {
        let (open, close) = if arg.is_required_set() {
            (" ", "")
        } else {
            (" [", "]")
        };
        line.push(roman(open));
        line.extend(option_spelling(arg));
        line.push(roman(close));
        line.push(roman(if is_repeated(arg) { "..." } else { "" }));
    }
    for group in command.get_groups().filter(|group| group.is_required_set()) {
        let members: Vec<&&Arg> = args
            .iter()
            .filter(|arg| group.get_args().any(|id| id == arg.get_id()))
            .collect();
        for (index, arg) in members.iter().enumerate() {
            line.push(roman(if index == 0 { " {" } else { " | " }));
            line.extend(option_spelling(arg));
        }
        line.extend((!members.is_empty()).then(|| roman("}")));
    }
    for arg in args.iter().filter(|arg| arg.is_positional()) {
        let (open, close) = if arg.is_required_set() {
            (" ", "")
        } else {
            (" [", "]")
        };
        line.push(roman(open));
        line.push(italic(value(arg)));
        let repeated = arg
            .get_num_args()
            .is_some_and(|range| range.max_values() > 1)
            || is_repeated(arg);
        line.push(roman(if repeated { "..." } else { "" }));
        line.push(roman(close));
    }
    if command.has_subcommands() {
        line.extend([roman(" "), italic("COMMAND")]);
    }
    page.control("SH", ["SYNOPSIS"])
        .control("nh", [])
        .control("ad", ["l"])
        .text(line)
        .control("ad", [])
        .control("hy", []);
}

/// Returns an option for a synopsis: its short name if it has one, and its value.
fn option_spelling(arg: &Arg) -> Vec<Inline> {
    let name = match (arg.get_short(), arg.get_long()) {
        (Some(short), _) => format!("-{short}"),
        (None, long) => format!("--{}", long.unwrap_or_default()),
    };
    let mut words = vec![bold(name)];
    if arg.get_action().takes_values() {
        words.extend([roman(" "), italic(value(arg))]);
    }
    words
}

fn is_repeated(arg: &Arg) -> bool {
    matches!(arg.get_action(), clap::ArgAction::Append)
}

/// The placeholder of an argument's value.
fn value(arg: &Arg) -> String {
    match arg.get_value_names() {
        Some([name, ..]) => name.to_string(),
        _ => arg.get_id().as_str().to_uppercase(),
    }
}

/// Appends a period to `text` if it has none.
fn sentence(text: &str) -> String {
    if text.ends_with('.') {
        text.to_owned()
    } else {
        format!("{text}.")
    }
}

/// Lowercases the first letter of `text`, as in lists of manual pages.
fn lowercase_first(text: &str) -> String {
    let mut chars = text.chars();
    chars
        .next()
        .map(|first| first.to_lowercase().chain(chars).collect())
        .unwrap_or_default()
}

/// Adds the section that names other pages.
fn add_see_also(page: &mut Roff, names: impl Iterator<Item = String>) {
    let mut line = Vec::new();
    for name in names {
        line.push(roman(if line.is_empty() { "" } else { ", " }));
        line.extend([bold(name), roman("(1)")]);
    }
    page.control("SH", ["SEE ALSO"]).text(line);
}

/// The page with the topics of `offld help`, in the layout for terminals.
fn topics(command: &Command) -> Roff {
    let mut page = title(
        "offld-topics",
        "topics of offld help: exit status, files, device patterns and others",
    );
    for topic in TOPICS {
        page.control("SH", [&*topic.name.to_uppercase()])
            .text([roman(topic.about)]);
        page.control("nf", []);
        for line in topic.render(command).lines() {
            page.text([roman(line)]);
        }
        page.control("fi", []);
    }
    add_see_also(&mut page, ["offld".to_owned()].into_iter());
    page
}

/// Adds the section about environment variables, if any are `wanted`.
fn add_environment(section: &mut Roff, wanted: &dyn Fn(&Variable) -> bool) {
    let mut variables = VARIABLES
        .iter()
        .filter(|variable| wanted(variable))
        .peekable();
    if variables.peek().is_some() {
        section.control("SH", ["ENVIRONMENT"]);
    }
    for variable in variables {
        section
            .control("TP", [])
            .text([bold(variable.name)])
            .text([roman(variable.help)]);
    }
}

fn tool_page(personality: &EmulatedTool, title: &str) -> Roff {
    let EmulatedTool {
        name,
        about,
        family,
        options,
        ..
    } = personality;
    let mut page = self::title(title, about);
    page.control("SH", ["SYNOPSIS"]);
    page.text([
        bold(*name),
        roman(" ["),
        italic("OPTION"),
        roman("...] "),
        italic("ARGUMENT"),
        roman("..."),
    ]);
    page.control("SH", ["DESCRIPTION"]).text([
        bold(*name),
        roman(" is one of the tools that "),
        bold("offld"),
        roman(" emulates. It accepts the command line of that tool, and the options below. "),
        bold(format!("offld {name}")),
        roman(" runs the same tool."),
    ]);
    page.control("SH", ["OPTIONS"]);
    for (option, help) in options() {
        page.control("TP", []).text([bold(option)]);
        for (index, line) in help.lines().enumerate() {
            if index > 0 {
                page.control("br", []);
            }
            page.text([roman(line)]);
        }
    }
    page.control("SH", ["EXIT STATUS"])
        .text([roman("0 on success; the status of a program that failed; 128+N if signal N ended that program or offld; 1 for all other errors.")]);
    add_environment(&mut page, &|variable| variable.of.contains(family));
    add_see_also(
        &mut page,
        [
            "offld".to_owned(),
            "offld-links".to_owned(),
            "offld-topics".to_owned(),
        ]
        .into_iter(),
    );
    page
}
