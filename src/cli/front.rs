//! `offld --help`, which fits on one screen, and `offld help`: commands, the names that offld is called by, and topics.

use std::ffi::OsString;
use std::io::Write as _;
use std::sync::Arc;

use anyhow::Result;

use super::topics::{TOPICS, Topic, row};
use super::{PERSONALITIES, by_word};
use crate::model::printable;
use crate::sys::shell::Shell;

/// The commands in groups. What each does is its own help's first line.
const GROUPS: &[(&str, &[&str])] = &[
    ("Set up", &["links", "doctor"]),
    ("Look", &["inspect", "size", "check"]),
    ("Change", &["prune", "split", "merge", "replace", "recompress", "strip-device"]),
    ("Builds", &["cache", "explain", "thinlto-distributor"]),
    ("Shells", &["completions", "man"]),
];

/// The word for the list of topics.
const LIST: &str = "topics";

/// The page of `offld --help`.
pub(super) fn page(command: &clap::Command) -> String {
    let about = |of: &clap::Command| of.get_about().map(ToString::to_string).unwrap_or_default();
    let mut text = format!("{}\n\nUsage: offld COMMAND [ARGUMENTS]\n\n", about(command));
    for (title, names) in GROUPS {
        for (index, name) in names.iter().enumerate() {
            let title = if index == 0 { title } else { "" };
            let what = command.find_subcommand(name).map(about).unwrap_or_default();
            text.push_str(&format!("{title:<8}{name:<20} {what}\n"));
        }
    }
    text.push_str("Names   ld.offld, clang-linker-wrapper and others, as the first word or the\n");
    text.push_str("        program's name: `offld help names`\n\n");
    text.push_str("More: offld help COMMAND, offld help TOPIC (offld help topics), offld --version\n");
    text
}

/// Runs `offld help WORDS`.
pub(super) fn run(words: &[OsString], command: clap::Command, shell: &Arc<Shell>) -> Result<()> {
    let mut command = command;
    command.build();
    let text = match words {
        [] => page(&command),
        [word] if word == LIST => list(),
        [word] if by_word(word).is_some() => {
            return by_word(word).map_or(Ok(()), |own| (own.run)(&["--help".into()], shell));
        }
        words => explained(words, &mut command)?,
    };
    // A reader that has closed the pipe is not an error.
    let _ = std::io::stdout().write_all(text.as_bytes());
    Ok(())
}

/// The help of a command, and the topic of that name: there may be one of them, or both.
fn explained(words: &[OsString], command: &mut clap::Command) -> Result<String> {
    let topic = words.first().filter(|_| words.len() == 1).and_then(|word| TOPICS.iter().find(|topic| word == topic.name));
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
            let words: Vec<String> = words.iter().map(|word| printable(&word.to_string_lossy()).into_owned()).collect();
            let words = words.join(" ");
            let meant = nearest(&words).map(|meant| format!("; did you mean `{meant}`?")).unwrap_or_default();
            anyhow::bail!("there is no command and no topic `{words}`{meant} (`offld help {LIST}` lists the topics)");
        }
    }
}

/// The topics, a line each.
fn list() -> String {
    let mut text = "Topics of `offld help TOPIC`:\n\n".to_owned();
    let lines = TOPICS.iter().map(|Topic { name, about, .. }| row(name, about));
    lines.for_each(|line| text.push_str(&line));
    text.push_str("\n`offld help COMMAND` says what a command does, `offld help names` which tools offld\nstands in for.\n");
    text
}

/// Every word that `offld help` knows.
pub(super) fn words() -> impl Iterator<Item = &'static str> {
    let commands = GROUPS.iter().flat_map(|(_, names)| names.iter().copied());
    let names = PERSONALITIES.iter().map(|own| own.name);
    let mut all: Vec<&str> = commands.chain(TOPICS.iter().map(|topic| topic.name)).chain(names).chain([LIST]).collect();
    all.sort_unstable();
    all.dedup();
    all.into_iter()
}

/// The word that was meant: one that begins so, or else one of which at most half is other letters.
fn nearest(word: &str) -> Option<&'static str> {
    if let Some(whole) = words().find(|known| word.len() > 2 && known.starts_with(word)) {
        return Some(whole);
    }
    let distance = |known: &&str| strsim::damerau_levenshtein(word, known);
    words().min_by_key(distance).filter(|known| distance(known) <= known.len() / 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::topics::WIDTH;

    #[test]
    fn what_is_nearly_a_topic_is_found() {
        assert_eq!(nearest("enviroment"), Some("environment"));
        assert_eq!(nearest("exit"), Some("exit-status"));
        assert_eq!(nearest("late_images"), Some("late-images"));
        assert_eq!(nearest("inspct"), Some("inspect"));
        assert_eq!(nearest("xyzzy-plugh"), None);
    }

    #[test]
    fn the_page_has_every_command_and_fits_on_a_screen() {
        let command = crate::cli::own::command();
        let page = page(&command);
        assert!(page.lines().count() <= 24, "{page}");
        assert!(page.lines().all(|line| line.chars().count() <= WIDTH), "{page}");
        let grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        for own in command.get_subcommands().filter(|own| own.get_name() != "help" && !own.is_hide_set()) {
            assert_eq!(grouped.iter().filter(|name| **name == own.get_name()).count(), 1, "{}", own.get_name());
        }
        assert!(grouped.iter().all(|name| command.find_subcommand(name).is_some()), "{grouped:?}");
    }
}
