//! Tests of the command line: each fault, each table row, recorded command lines, random command
//! lines.

mod faults;
mod options;
mod recorded;
mod responses;
mod tables;

use std::ffi::OsString;
use std::path::PathBuf;

use super::settings::{InputName, LinkSettings};
use super::{ArgumentList, Role};

/// Arguments separated by spaces.
fn words(line: &str) -> Vec<OsString> {
    line.split(' ')
        .filter(|word| !word.is_empty())
        .map(OsString::from)
        .collect()
}

fn arguments(role: Role, line: &str) -> ArgumentList {
    ArgumentList::parse(role, words(line)).expect(line)
}

fn settings(line: &str) -> LinkSettings {
    LinkSettings::new(&arguments(Role::Wrapper, line), &|_| None).expect(line)
}

fn error(line: &str) -> String {
    match ArgumentList::parse(Role::Wrapper, words(line))
        .and_then(|arguments| LinkSettings::new(&arguments, &|_| None))
    {
        Ok(_) => panic!("`{line}` is taken"),
        Err(error) => error.to_string(),
    }
}

/// The host command line with the object `W` and the library `-lR` added, joined by spaces.
fn host(role: Role, line: &str) -> String {
    joined(&arguments(role, line).host_line(&words("W"), &words("-lR")))
}

fn joined(line: &[OsString]) -> String {
    line.iter()
        .map(|token| token.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ")
}

/// Inputs as text: `a.o`, `-lm`, followed by the state: `+whole`, `+lazy`, `+static`, `+needed`,
/// `+data`, `+group0`.
fn inputs(line: &str) -> Vec<String> {
    settings(line).inputs.iter().map(describe).collect()
}

fn describe(input: &super::settings::InputSpec) -> String {
    let mut text = match &input.name {
        InputName::File(path) => path.display().to_string(),
        InputName::Library(name) => format!("-l{}", name.display()),
        InputName::Script(path) => format!("-T {}", path.display()),
    };
    let states = [
        (input.state.whole_archive, "+whole"),
        (input.state.lazy, "+lazy"),
        (input.state.prefer_static, "+static"),
        (input.state.as_needed, "+needed"),
        (input.state.binary, "+data"),
    ];
    for (holds, word) in states {
        text.push_str(if holds { word } else { "" });
    }
    if let Some(group) = input.state.group {
        text.push_str(&format!("+group{group}"));
    }
    text
}

fn recordings() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/command-lines")
}
