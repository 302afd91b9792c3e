//! `offld man DIR`: manual pages. Those of offld and its commands are generated from their command lines; those of the other names
//! from the tables that their command lines are read by. All say which environment variables count. The topics of `offld help` share a
//! page.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context, Result};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use super::environment::{VARIABLES, Variable};
use super::topics::TOPICS;
use super::{PERSONALITIES, Personality};
use crate::sys::session;

/// Writes the pages to `folder`.
pub(super) fn write(command: clap::Command, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make the folder `{}`", folder.display()))?;
    let mut command = command;
    command.build();
    page(folder, "offld-topics", |out| topics(&command).to_writer(out))?;
    page(folder, "offld", |out| {
        Man::new(command.clone()).render(out)?;
        names().to_writer(out)?;
        out.write_all(environment(&|_| true).to_roff().as_bytes())
    })?;
    for own in command.get_subcommands() {
        let name = format!("offld-{}", own.get_name());
        let of_own = |variable: &Variable| match own.get_name() {
            "cache" => variable.name.contains("CACHE"),
            "check" => variable.name == session::OFFLD_NATIVE_ROOT || variable.name == "LD_LIBRARY_PATH",
            "thinlto-distributor" => {
                ["OFFLD_CACHE", "OFFLD_MEMORY", "MAKEFLAGS", "XDG_"].iter().any(|name| variable.name.starts_with(name))
            }
            "doctor" => {
                const ITS_OWN: [&str; 7] =
                    ["LIBRARY_PATH", "OFFLD_CLANG", "OFFLD_LINKER", "OFFLD_LLVM", "OFFLD_LLVM_TIMEOUT", "PATH", "VIRTUAL_ENV"];
                let is_of_cache = variable.name.starts_with("OFFLD_CACHE") && variable.name != session::OFFLD_CACHE_LOG;
                is_of_cache || variable.name == session::OFFLD_NATIVE_ROOT || ITS_OWN.contains(&variable.name)
            }
            "size" => variable.name == session::OFFLD_NATIVE_ROOT,
            _ => false,
        };
        page(folder, &name, |out| {
            Man::new(own.clone()).render(out)?;
            out.write_all(environment(&of_own).to_roff().as_bytes())
        })?;
        for sub in own.get_subcommands().filter(|sub| sub.get_name() != "help") {
            page(folder, &format!("{name}-{}", sub.get_name()), |out| Man::new(sub.clone()).render(out))?;
        }
    }
    for personality in PERSONALITIES.iter().filter(|personality| !personality.only_as_ld) {
        // The prefix `offld-` keeps `man clang-linker-wrapper` showing LLVM's own page.
        let name = personality.name;
        let name = if name.contains("offld") { name.to_owned() } else { format!("offld-{name}") };
        page(folder, &name, |out| of_personality(personality, &name).to_writer(out))?;
    }
    Ok(())
}

fn page(folder: &Path, name: &str, render: impl FnOnce(&mut Vec<u8>) -> std::io::Result<()>) -> Result<()> {
    let path = folder.join(format!("{name}.1"));
    let mut text = Vec::new();
    render(&mut text)?;
    fs::write(&path, text).with_context(|| format!("cannot write `{}`", path.display()))
}

/// The section of the page of offld about the names that it is called by.
fn names() -> Roff {
    let mut section = Roff::new();
    section.control("SH", ["NAMES"]);
    section
        .text([roman("offld is each of these tools by the name of its executable, or by its first word: "), bold("offld ld …")]);
    for Personality { name, about, .. } in &PERSONALITIES {
        section.control("TP", []).text([bold(*name)]).text([roman(*about)]);
    }
    section
}

/// The page with the topics of `offld help`, as a terminal shows them.
fn topics(command: &clap::Command) -> Roff {
    let mut page = Roff::new();
    page.control("TH", ["offld-topics", "1", "", concat!("offld ", env!("CARGO_PKG_VERSION"))]);
    page.control("SH", ["NAME"]).text([roman("offld-topics - what offld help TOPIC says")]);
    for topic in TOPICS {
        page.control("SH", [&*topic.name.to_uppercase()]).text([roman(topic.about)]);
        page.control("nf", []);
        for line in topic.render(command).lines() {
            page.text([roman(line)]);
        }
        page.control("fi", []);
    }
    page.control("SH", ["SEE ALSO"]).text([bold("offld"), roman("(1)")]);
    page
}

/// The section about environment variables by itself.
fn environment(wanted: &dyn Fn(&Variable) -> bool) -> Roff {
    let mut section = Roff::new();
    add_environment(&mut section, wanted);
    section
}

/// The section about environment variables, if any are `wanted`.
fn add_environment(section: &mut Roff, wanted: &dyn Fn(&Variable) -> bool) {
    let mut variables = VARIABLES.iter().filter(|variable| wanted(variable)).peekable();
    if variables.peek().is_some() {
        section.control("SH", ["ENVIRONMENT"]);
    }
    for variable in variables {
        section.control("TP", []).text([bold(variable.name)]).text([roman(variable.help)]);
    }
}

fn of_personality(personality: &Personality, title: &str) -> Roff {
    let Personality { name, about, family, options, .. } = personality;
    let version = concat!("offld ", env!("CARGO_PKG_VERSION"));
    let mut page = Roff::new();
    page.control("TH", [title, "1", "", version]);
    page.control("SH", ["NAME"]).text([roman(format!("{title} - {about}"))]);
    page.control("SH", ["SYNOPSIS"]).text([bold(*name), roman(" [options] <arguments>")]);
    page.control("SH", ["DESCRIPTION"]).text([
        bold(*name),
        roman(" is one of the names that "),
        bold("offld"),
        roman(" is called by. It takes the command line of the tool that it stands in for, and the options below; "),
        bold(format!("offld {name}")),
        roman(" is the same by another name."),
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
    add_environment(&mut page, &|variable| variable.of.contains(family));
    page.control("SH", ["SEE ALSO"]).text([bold("offld"), roman("(1), "), bold("offld-links"), roman("(1)")]);
    page
}
