//! Tests with command lines recorded from compilers. Each file in `tests/command-lines` contains
//! the compiler's command, the command line, and the tokens that offld reads from it; `BLESS=1`
//! rewrites the tokens.

use std::fmt::Write;
use std::fs;

use super::super::Route;
use super::super::response::{Style, tokenize};
use super::*;

fn read_line(role: Role, line: &str) -> String {
    let mut argv = tokenize(line.as_bytes(), Style::Gnu);
    argv.remove(0);
    let arguments = ArgumentList::read(role, argv.clone()).expect(line);
    let settings = LinkSettings::new(&arguments, &|_| None).expect(line);
    let host = arguments.host_line(&words("W"), &words("-lR"));
    let ours: Vec<_> = arguments
        .args()
        .iter()
        .filter(|arg| arg.route == Route::Wrapper)
        .collect();
    let mut text = String::new();
    let mut say = |what: &str, value: String| {
        let _ = writeln!(text, "{what}: {value}");
    };
    say(
        "ours",
        ours.iter()
            .map(|arg| joined(&arguments.tokens()[arg.tokens.clone()]))
            .collect::<Vec<_>>()
            .join(" "),
    );
    say("output", format!("{:?}", settings.output));
    let place = host
        .iter()
        .position(|token| token == "W")
        .expect("the object");
    say("object after", joined(&host[..place]));
    let place = host
        .iter()
        .position(|token| token == "-lR")
        .expect("the library");
    say("library before", joined(&host[place + 1..]));
    say(
        "inputs",
        settings
            .inputs
            .iter()
            .map(describe)
            .collect::<Vec<_>>()
            .join(" "),
    );
    say(
        "library dirs",
        settings
            .host
            .library_dirs
            .iter()
            .map(|dir| dir.display().to_string())
            .collect::<Vec<_>>()
            .join(" "),
    );
    let bare = arguments.host_line(&[], &[]);
    let theirs = arguments
        .args()
        .iter()
        .filter(|arg| arg.route != Route::Wrapper)
        .flat_map(|arg| arg.tokens.clone());
    assert!(theirs.map(|index| &argv[index]).eq(&bare), "{line}");
    if ours.is_empty() {
        assert_eq!(bare, argv);
    }
    text
}

#[test]
fn recorded_lines_read_as_they_were() {
    let bless = std::env::var_os("BLESS").is_some();
    let mut count = 0;
    for entry in fs::read_dir(recordings()).expect("the recordings") {
        let path = entry.expect("a recording").path();
        let file = fs::read_to_string(&path).expect("a recording");
        let lines: Vec<&str> = file.lines().collect();
        let [command, role, line, expected @ ..] = &lines[..] else {
            panic!("{}: too short", path.display())
        };
        let role_of = if *role == "role: ld" {
            Role::Ld
        } else {
            Role::Wrapper
        };
        let read = read_line(role_of, line);
        if bless {
            fs::write(&path, format!("{command}\n{role}\n{line}\n{read}")).expect("a recording");
        } else {
            assert_eq!(
                read.lines().collect::<Vec<_>>(),
                expected,
                "{}",
                path.display()
            );
        }
        count += 1;
    }
    assert!(count >= 20, "recordings are missing");
}
