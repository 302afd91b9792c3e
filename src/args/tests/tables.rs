//! Tests of the option tables, and of command lines generated at random from them.

use std::ptr;

use proptest::prelude::*;

use super::super::{
    Arg, ArgKind, Dashes, OptionRow, Route, Scope, Shape, host_rows, link_exe_rows, own_rows,
};
use super::*;

#[test]
fn rows_are_in_order_and_unique() {
    for table in [own_rows(), host_rows(), link_exe_rows()] {
        for pair in table.windows(2) {
            let key = |row: &OptionRow| (row.name.as_bytes(), row.dashes);
            assert!(
                key(&pair[0]) < key(&pair[1]),
                "{} and {}",
                pair[0].name,
                pair[1].name
            );
            let both_hold = pair[0].dashes.accept(pair[1].dashes) || pair[1].dashes == Dashes::Any;
            assert!(
                pair[0].name != pair[1].name || !both_hold || pair[0].scope != pair[1].scope,
                "{}",
                pair[0].name
            );
        }
    }
}

#[test]
fn names_fit_their_shape() {
    for row in own_rows().iter().chain(host_rows()) {
        assert!(
            row.shape.is_letter() <= (row.name.len() == 1 && row.dashes == Dashes::One),
            "{}",
            row.name
        );
        // With one dash, these are `-o` with a value.
        let output_with_one_dash =
            ["output", "omagic", "oformat", "out-implib", "output-def"].contains(&row.name);
        assert!(
            !output_with_one_dash || row.dashes == Dashes::Two,
            "{}",
            row.name
        );
    }
}

/// The spellings of a row's option, each with the expected operand.
fn spellings(row: &OptionRow) -> Vec<(Vec<String>, Option<&'static str>)> {
    let dashes = match row.dashes {
        Dashes::One => &["-"][..],
        Dashes::Two => &["--"],
        Dashes::Any => &["-", "--"],
    };
    let mut all = Vec::new();
    for dash in dashes {
        let name = format!("{dash}{}", row.name);
        let alone = (vec![name.clone()], None);
        let joined = (vec![format!("{name}=7")], Some("7"));
        let separate = (vec![name.clone(), "7".to_owned()], Some("7"));
        let letter = (vec![format!("{name}7")], Some("7"));
        all.extend(match row.shape {
            Shape::Flag => vec![alone],
            Shape::Equals => vec![joined],
            Shape::Separate => vec![separate],
            Shape::Either => vec![joined, separate],
            Shape::EitherNumber => vec![alone, joined, separate],
            Shape::OptionalEquals => vec![alone, joined],
            Shape::Letter => vec![letter, separate],
            Shape::LetterNumber => vec![alone, letter, separate],
            Shape::Colon | Shape::OptionalColon => Vec::new(),
        });
    }
    all
}

#[test]
fn every_row_is_found_by_each_of_its_spellings() {
    for row in own_rows().iter().chain(host_rows()) {
        for (tokens, operand) in spellings(row) {
            let mut line = tokens.join(" ");
            line.push_str(if row.scope == Scope::BeforeSeparator {
                " -- a.o"
            } else {
                " a.o"
            });
            let arguments = arguments(Role::Wrapper, &line);
            let arg = &arguments.args()[0];
            // In this role, `mllvm` with one dash is offld's option; it has a row in both tables.
            assert!(
                matches!(arg.kind, ArgKind::Known(found) if ptr::eq(found, row) || row.name == "mllvm"),
                "{line}"
            );
            assert_eq!(
                arg.value.as_deref(),
                operand.map(std::ffi::OsStr::new),
                "{line}"
            );
            assert_eq!(arg.tokens.len(), tokens.len(), "{line}");
            assert_eq!(
                arguments.args().iter().filter(|arg| arg.is_input()).count(),
                1 + usize::from(arg.is_input()),
                "{line}"
            );
        }
    }
}

#[test]
fn every_link_exe_row_is_found_with_each_prefix() {
    for row in link_exe_rows() {
        for prefix in ["/", "-", "/?", "-?"] {
            let value = if row.shape == Shape::Flag { "" } else { ":v" };
            let line = format!(
                "--host-triple=x86_64-pc-windows-msvc {prefix}{}{value}",
                row.name
            );
            let arguments = arguments(Role::Wrapper, &line);
            assert!(
                matches!(arguments.args()[1].kind, ArgKind::Known(found) if ptr::eq(found, row)),
                "{line}"
            );
        }
    }
}

fn covers(args: &[Arg], tokens: usize) -> bool {
    let ends = args.iter().try_fold(0, |at, arg| {
        (arg.tokens.start == at && !arg.tokens.is_empty()).then_some(arg.tokens.end)
    });
    ends == Some(tokens)
}

/// A token: an option of any table in any spelling, or arbitrary text.
fn token() -> impl Strategy<Value = OsString> {
    let names: Vec<&'static OptionRow> = own_rows()
        .iter()
        .chain(host_rows())
        .chain(link_exe_rows())
        .collect();
    let option = (
        proptest::sample::select(names),
        "-{0,2}",
        "(=|:|)",
        "[a-z0-9./=]{0,4}",
    )
        .prop_map(|(row, dashes, mid, value)| {
            OsString::from(format!("{dashes}{}{mid}{value}", row.name))
        });
    let bytes =
        proptest::collection::vec(1u8.., 0..6).prop_map(std::os::unix::ffi::OsStringExt::from_vec);
    prop_oneof![3 => option, 1 => bytes, 1 => "[-/@]{0,2}[a-zA-Z(). ]{0,4}".prop_map(OsString::from)]
}

proptest! {
    #[test]
    fn a_line_without_our_options_is_forwarded_token_for_token(tokens in proptest::collection::vec(token(), 0..12), wrapper: bool) {
        let role = if wrapper { Role::Wrapper } else { Role::Ld };
        let Ok(arguments) = ArgumentList::parse(role, tokens.clone()) else { return Ok(()) };
        prop_assert!(covers(arguments.args(), tokens.len()));
        let theirs: Vec<_> = arguments.args().iter().filter(|arg| arg.route != Route::Wrapper).flat_map(|arg| arg.tokens.clone()).collect();
        let expected: Vec<_> = theirs.iter().map(|index| tokens[*index].clone()).collect();
        prop_assert_eq!(arguments.host_line(&[], &[]), expected.clone());
        if theirs.len() == tokens.len() {
            prop_assert_eq!(&expected, &tokens);
        }
        // Each added argument appears once, and nothing else changes.
        let objects: Vec<_> = words("W1 W2");
        let libraries = words("-lR");
        let mut line = arguments.host_line(&objects, &libraries);
        prop_assert_eq!(line.len(), expected.len() + 3);
        for added in objects.iter().chain(&libraries) {
            let position = line.iter().position(|token| token == added);
            prop_assert!(position.is_some());
            line.remove(position.unwrap_or_default());
        }
        prop_assert_eq!(line, expected);
        // Reading must not panic or loop for any values.
        let _ = LinkSettings::new(&arguments, &|_| None);
    }
}
