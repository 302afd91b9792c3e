//! Tests of reading and writing response files.

use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::process::Command;

use proptest::prelude::*;

use super::super::response_style as style_of;
use super::*;
use offld_system::response::{Style, expand, needs_spill, spill, tokenize};

fn tokens(text: &str, style: Style) -> Vec<String> {
    tokenize(text.as_bytes(), style)
        .into_iter()
        .map(|token| token.to_string_lossy().into_owned())
        .collect()
}

#[test]
fn gnu_quoting() {
    let read = |text| tokens(text, Style::Gnu);
    assert_eq!(read(" a\tb\r\nc  "), ["a", "b", "c"]);
    assert_eq!(
        read(r#""a b" 'c "d"' e\ f "g\"h" 'i\'j' k"l"'m'"#),
        ["a b", "c \"d\"", "e f", "g\"h", "i'j", "klm"]
    );
    assert_eq!(read(r#"C:\\x "\\" '' "" \"#), ["C:\\x", "\\", "", "", "\\"]);
    assert_eq!(read("\"a\nb\""), ["a\nb"]);
}

#[test]
fn windows_quoting() {
    let read = |text| tokens(text, Style::Windows);
    assert_eq!(
        read(r#"C:\a\b.obj "C:\a b\" c"#),
        [r"C:\a\b.obj", r#"C:\a b" c"#]
    );
    assert_eq!(
        read(r#""C:\a b\\" c a\\\"b a\\"b c" "x""y" '' """#),
        [r"C:\a b\", "c", r#"a\"b"#, r"a\b c", "x\"y", "''", ""]
    );
}

#[test]
fn windows_rules_apply_to_microsofts_linker_only() {
    assert_eq!(
        style_of(
            Role::Wrapper,
            &words("--host-triple=x86_64-pc-windows-msvc @x")
        ),
        Style::Windows
    );
    assert_eq!(
        style_of(
            Role::Wrapper,
            &words("--host-triple=x86_64-w64-windows-gnu @x")
        ),
        Style::Gnu
    );
    assert_eq!(
        style_of(Role::Ld, &words("--rsp-quoting=windows @x")),
        Style::Windows
    );
    assert_eq!(
        style_of(
            Role::Wrapper,
            &words("--host-triple=x86_64-pc-windows-msvc --rsp-quoting=posix")
        ),
        Style::Gnu
    );
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("cannot create a directory")
}

fn at(path: &Path) -> OsString {
    let mut arg = OsString::from("@");
    arg.push(path);
    arg
}

#[test]
fn files_name_files() {
    let folder = folder();
    let outer = folder.path().join("outer");
    fs::write(&outer, "a @inner @gone b").expect("write");
    fs::write(folder.path().join("inner"), "'c d'").expect("write");
    let args = vec!["x".into(), at(&outer), "@".into(), at(folder.path())];
    let expected = ["x", "a", "c d", "@gone", "b", "@"].map(OsString::from);
    assert_eq!(
        expand(args, Style::Gnu).expect("expanded"),
        [&expected[..], &[at(folder.path())]].concat()
    );
}

#[test]
fn a_file_may_be_named_twice_but_not_by_itself() {
    let folder = folder();
    let [a, b] = ["a", "b"].map(|name| folder.path().join(name));
    fs::write(&a, "@b @b").expect("write");
    fs::write(&b, "x").expect("write");
    assert_eq!(
        expand(vec![at(&a)], Style::Gnu).expect("expanded"),
        words("x x")
    );
    fs::write(&b, "@a").expect("write");
    let error = expand(vec![at(&a)], Style::Gnu)
        .expect_err("a cycle of files")
        .to_string();
    let [a, b] = [a.display(), b.display()];
    assert_eq!(
        error,
        format!("response files include each other: `{a}` -> `{b}` -> `{a}`")
    );
}

#[test]
fn utf_16_with_a_byte_order_mark_is_read() {
    let folder = folder();
    let path = folder.path().join("rsp");
    let units: Vec<u16> = "\u{feff}\"ä b\" c".encode_utf16().collect();
    for bytes in [
        units
            .iter()
            .flat_map(|unit| unit.to_le_bytes())
            .collect::<Vec<_>>(),
        units.iter().flat_map(|unit| unit.to_be_bytes()).collect(),
    ] {
        fs::write(&path, &bytes).expect("write");
        assert_eq!(
            expand(vec![at(&path)], Style::Windows).expect("expanded"),
            ["ä b", "c"].map(OsString::from)
        );
        fs::write(&path, &bytes[..bytes.len() - 1]).expect("write");
        assert!(expand(vec![at(&path)], Style::Windows).is_err());
    }
    fs::write(&path, "\u{feff}ä").expect("write");
    assert_eq!(
        expand(vec![at(&path)], Style::Gnu).expect("expanded"),
        ["ä"].map(OsString::from)
    );
}

#[test]
fn f21_long_lines_need_a_file() {
    assert!(!needs_spill(&words("a.o -o x")));
    assert!(needs_spill(&["x".repeat(100_000).into()]));
    assert!(needs_spill(&vec!["a".into(); 20_000]));
}

proptest! {
    #[test]
    fn spilled_arguments_are_read_back(args in proptest::collection::vec(proptest::collection::vec(prop_oneof![2 => proptest::sample::select(&b"\\\"' \n\t\r@#$ab"[..]), 1 => 1u8..], 0..12), 0..8)) {
        let args: Vec<OsString> = args.into_iter().map(OsString::from_vec).collect();
        for style in [Style::Gnu, Style::Windows] {
            prop_assert_eq!(tokenize(&spill(&args, style), style), args.clone());
        }
    }
}

/// Runs each linker twice on files with unusual names: once with direct arguments, and once with a
/// response file. Both runs must have the same output and exit status.
#[test]
fn child_processes_read_back_spilled_arguments() {
    let folder = folder();
    let names = [
        "a b.o",
        "q\"r.o",
        "s't.o",
        "back\\slash.o",
        "end\\",
        "new\nline.o",
        "\\\"both\\\\\".o",
        "$x`y`.o",
        "tab\t.o",
    ];
    let mut args: Vec<OsString> = names
        .iter()
        .map(|name| folder.path().join(name).into())
        .collect();
    args.push(
        folder
            .path()
            .join(OsString::from_vec(b"\xff\xfe.o".to_vec()))
            .into(),
    );
    for arg in &args {
        fs::write(arg, "").expect("write");
    }
    args.push("-o".into());
    args.push(folder.path().join("out").into());
    args.push("--trace".into());
    let rsp = folder.path().join("rsp");
    fs::write(&rsp, spill(&args, Style::Gnu)).expect("write");
    for linker in ["ld.bfd", "ld.lld", "ld.lld-22", "ld.lld-19", "mold"] {
        // Linkers read empty files as empty linker scripts, so each linker opens all files.
        let direct = Command::new(linker).args(&args).output();
        let through = Command::new(linker).arg(at(&rsp)).output();
        match (direct, through) {
            (Ok(direct), Ok(through)) => {
                assert_eq!(through.status, direct.status, "{linker}");
                assert_eq!(through.stderr, direct.stderr, "{linker}");
                assert_eq!(through.stdout, direct.stdout, "{linker}");
            }
            _ => eprintln!("skipped: no {linker}"),
        }
    }
}
