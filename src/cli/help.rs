//! `offld --help`, which fits on one screen, and `offld help`, which explains commands, tool names
//! and topics.

use std::ffi::OsString;
use std::io::Write;
use std::sync::Arc;

use anyhow::Result;
use clap::Args;

use super::own::{self, COMMANDS};
use super::topics::{TOPICS, Topic, row};
use super::{EMULATED_TOOLS, by_word};
use offld_system::shell::Shell;
use offload_formats::model::printable;

/// The options of `offld help`.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// Explain this command (with subcommand), tool or topic; `topics` lists all topics
    #[arg(value_name = "COMMAND|TOOL|TOPIC")]
    words: Vec<OsString>,
}

/// The options of `offld completions`.
#[derive(Debug, Args)]
pub(super) struct Completions {
    /// Write completions for this shell
    #[arg(value_enum)]
    shell: clap_complete::Shell,
}

/// The argument that lists the topics.
const LIST: &str = "topics";

/// The commands in groups, in the order of their first commands.
fn groups() -> Vec<(&'static str, Vec<&'static str>)> {
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    for &(group, name) in COMMANDS.iter().filter(|(group, _)| !group.is_empty()) {
        match groups.iter_mut().find(|(title, _)| *title == group) {
            Some((_, names)) => names.push(name),
            None => groups.push((group, vec![name])),
        }
    }
    groups
}

/// The text of `offld --help`.
pub(super) fn page(command: &clap::Command) -> String {
    let about = |command: &clap::Command| {
        command
            .get_about()
            .map(ToString::to_string)
            .unwrap_or_default()
    };
    let mut text = format!("{}\n\nUsage: offld COMMAND [ARGUMENTS]\n\n", about(command));
    for (title, names) in groups() {
        for (index, name) in names.iter().enumerate() {
            let title = if index == 0 { title } else { "" };
            let what = command.find_subcommand(name).map(about).unwrap_or_default();
            text.push_str(&format!("{title:<8}{name:<20} {what}\n"));
        }
    }
    text.push_str("Tools   ld.offld, clang-linker-wrapper and others (see `offld help names`)\n");
    text.push_str(
        "More: offld help COMMAND, offld help TOPIC (offld help topics), offld --version\n",
    );
    text
}

/// Runs `offld help WORDS`.
pub(super) fn run(options: Options, shell: &Arc<Shell>) -> Result<()> {
    let mut command = own::command();
    command.build();
    let text = match &options.words[..] {
        [] => page(&command),
        [word] if word == LIST => list(),
        [word] if by_word(word).is_some() => {
            return by_word(word).map_or(Ok(()), |own| (own.run)(&["--help".into()], shell));
        }
        words => explained(words, &mut command)?,
    };
    // A closed pipe is not an error.
    let _ = std::io::stdout().write_all(shell.stdout_style().prose(&text).as_bytes());
    Ok(())
}

/// Runs `offld completions SHELL`.
pub(super) fn completions(options: Completions, _shell: &Arc<Shell>) -> Result<()> {
    let mut text = Vec::new();
    let words = clap::builder::PossibleValuesParser::new(words());
    let mut completed = own::command().mut_subcommand("help", |help| {
        help.mut_arg("words", |arg| arg.value_parser(words))
    });
    clap_complete::generate(options.shell, &mut completed, "offld", &mut text);
    if options.shell == clap_complete::Shell::Bash {
        text = commands_first(&String::from_utf8_lossy(&text)).into_bytes();
    }
    let _ = std::io::stdout().write_all(&text);
    Ok(())
}

/// Moves the options in each list of a bash completion script to the end. bash shows the lists
/// unsorted, and clap_complete puts options before commands.
fn commands_first(script: &str) -> String {
    let line = |line: &str| {
        let list = line
            .split_once("opts=\"")
            .and_then(|(start, rest)| Some((start, rest.strip_suffix("\"\n")?)));
        let Some((start, list)) = list else {
            return line.to_owned();
        };
        let (options, mut words): (Vec<&str>, Vec<&str>) = list
            .split_whitespace()
            .partition(|word| word.starts_with('-'));
        words.extend(options);
        format!("{start}opts=\"{}\"\n", words.join(" "))
    };
    script.split_inclusive('\n').map(line).collect()
}

/// Returns the help of a command and the topic with that name; at least one of them must exist.
fn explained(words: &[OsString], command: &mut clap::Command) -> Result<String> {
    let topic = words
        .first()
        .filter(|_| words.len() == 1)
        .and_then(|word| TOPICS.iter().find(|topic| word == topic.name));
    let topic = topic.map(|topic| topic.render(command));
    let mut found = Some(command);
    for word in words {
        found = found.and_then(|command| command.find_subcommand_mut(word));
    }
    let help = found.map(|command| command.render_long_help().to_string());
    match (help, topic) {
        (Some(help), Some(topic)) => Ok(format!("{help}\n{topic}")),
        (Some(text), None) | (None, Some(text)) => Ok(text),
        (None, None) => {
            let words: Vec<String> = words
                .iter()
                .map(|word| printable(&word.to_string_lossy()).into_owned())
                .collect();
            let words = words.join(" ");
            let meant = nearest(&words)
                .map(|meant| format!("; did you mean `{meant}`?"))
                .unwrap_or_default();
            anyhow::bail!(
                "unknown command or topic `{words}`{meant} (`offld help {LIST}` lists the topics)"
            );
        }
    }
}

/// The list of topics, one line each.
fn list() -> String {
    let mut text = "Topics of `offld help TOPIC`:\n\n".to_owned();
    let lines = TOPICS
        .iter()
        .map(|Topic { name, about, .. }| row(name, about));
    lines.for_each(|line| text.push_str(&line));
    text.push_str(
        "\n`offld help COMMAND` explains a command. `offld help names` lists the tools.\n",
    );
    text
}

/// Every argument that `offld help` knows.
fn words() -> impl Iterator<Item = &'static str> {
    let commands = groups().into_iter().flat_map(|(_, names)| names);
    let names = EMULATED_TOOLS.iter().map(|own| own.name);
    let mut all: Vec<&str> = commands
        .chain(TOPICS.iter().map(|topic| topic.name))
        .chain(names)
        .chain([LIST])
        .collect();
    all.sort_unstable();
    all.dedup();
    all.into_iter()
}

/// Suggests a known name: one that starts with `word`, else one that differs in at most half of its
/// letters.
fn nearest(word: &str) -> Option<&'static str> {
    if let Some(whole) = words().find(|known| word.len() > 2 && known.starts_with(word)) {
        return Some(whole);
    }
    let distance = |known: &&str| strsim::damerau_levenshtein(word, known);
    words()
        .min_by_key(distance)
        .filter(|known| distance(known) <= known.len() / 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::topics::WIDTH;

    #[test]
    fn misspelled_topics_are_found() {
        assert_eq!(nearest("enviroment"), Some("environment"));
        assert_eq!(nearest("exit"), Some("exit-status"));
        assert_eq!(nearest("late_images"), Some("late-images"));
        assert_eq!(nearest("inspct"), Some("inspect"));
        assert_eq!(nearest("xyzzy-plugh"), None);
    }

    #[test]
    fn bash_completes_commands_before_options() {
        let mut script = Vec::new();
        let mut command = own::command();
        clap_complete::generate(
            clap_complete::Shell::Bash,
            &mut command,
            "offld",
            &mut script,
        );
        let script = commands_first(&String::from_utf8_lossy(&script));
        let lists: Vec<&str> = script
            .lines()
            .filter_map(|line| line.trim_start().strip_prefix("opts=\"")?.strip_suffix('"'))
            .filter(|list| !list.is_empty())
            .collect();
        assert!(
            lists
                .iter()
                .any(|list| list.starts_with("links inspect ") && list.ends_with(" --version")),
            "{lists:?}"
        );
        for list in &lists {
            let words = list.split(' ').map(|word| word.starts_with('-'));
            assert!(words.is_sorted_by(|one, other| one <= other), "{list}");
        }
        assert!(lists.len() > COMMANDS.len(), "{lists:?}");
    }

    #[test]
    fn the_page_has_every_command_and_fits_on_a_screen() {
        let command = crate::cli::own::command();
        let page = page(&command);
        assert!(page.lines().count() <= 24, "{page}");
        assert!(
            page.lines().all(|line| line.chars().count() <= WIDTH),
            "{page}"
        );
        let grouped: Vec<&str> = groups().into_iter().flat_map(|(_, names)| names).collect();
        for own in command
            .get_subcommands()
            .filter(|own| own.get_name() != "help" && !own.is_hide_set())
        {
            assert_eq!(
                grouped
                    .iter()
                    .filter(|name| **name == own.get_name())
                    .count(),
                1,
                "{}",
                own.get_name()
            );
        }
        assert!(
            grouped
                .iter()
                .all(|name| command.find_subcommand(name).is_some()),
            "{grouped:?}"
        );
    }
}
