//! Tests of the contents of the page, without a browser; tests/suite/size/page tests the page in
//! Chromium.

use std::io::Read;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::Value;

use super::page::{PageRow, write};

fn row(arch: &str, kernel: &str, part: &str, file: u64) -> PageRow {
    let [arch, kernel, part] = [arch, kernel, part].map(Into::into);
    PageRow {
        arch,
        kernel,
        part,
        file,
        inflated: 3 * file,
        ..PageRow::default()
    }
}

fn page(title: &str, compared: bool, rows: &[PageRow]) -> String {
    let mut out = Vec::new();
    write(&mut out, title, "offld 1", compared, rows).unwrap();
    String::from_utf8(out).unwrap()
}

/// Six names, the file size and uncompressed size, and both for the old file.
type Row = (Vec<String>, i64, i64, Option<i64>, Option<i64>);

/// The rows of a page, read as its script does.
fn rows_of(page: &str) -> Vec<Row> {
    let data = page
        .split_once("id=\"data\">")
        .unwrap()
        .1
        .split_once("</script>")
        .unwrap()
        .0;
    let mut json = String::new();
    flate2::read::DeflateDecoder::new(&BASE64_STANDARD.decode(data).unwrap()[..])
        .read_to_string(&mut json)
        .unwrap();
    let json: Value = serde_json::from_str(&json).unwrap();
    let list = |name: &str| json[name].as_array().unwrap().clone();
    let mut strings: Vec<Vec<u16>> = Vec::new();
    for (shared, rest) in list("shared").iter().zip(list("rest")) {
        let last = strings.last().cloned().unwrap_or_default();
        let start = &last[..usize::try_from(shared.as_u64().unwrap()).unwrap()];
        strings.push(
            [
                start,
                &rest.as_str().unwrap().encode_utf16().collect::<Vec<u16>>(),
            ]
            .concat(),
        );
    }
    let mut at = [0; 6];
    let columns = ["input", "arch", "unit", "template", "kernel", "part"].map(list);
    let [file, inflated, old_file, old_inflated] =
        ["file", "inflated", "old_file", "old_inflated"].map(list);
    let row = |i: usize| {
        let names = columns.iter().zip(&mut at).map(|(column, at)| {
            *at += column[i].as_i64().unwrap();
            String::from_utf16(&strings[usize::try_from(*at).unwrap()]).unwrap()
        });
        let names = names.collect();
        let size = file[i].as_i64().unwrap();
        let whole = size + inflated[i].as_i64().unwrap();
        let old = |now: i64, list: &[Value]| Some(now - list.get(i)?.as_i64()?);
        (
            names,
            size,
            whole,
            old(size, &old_file),
            old(whole, &old_inflated),
        )
    };
    (0..file.len()).map(row).collect()
}

#[test]
fn rows_of_the_same_names_are_added_up() {
    let mut old = row("sm_80", "b", "code", 7);
    (old.old_file, old.old_inflated) = (Some(9), Some(5));
    let rows = [
        row("sm_80", "b", "code", 1),
        row("sm_80", "a", "code", 2),
        old.clone(),
        row("", "", "padding", 4),
    ];
    let names = |of: [&str; 6]| of.map(str::to_owned).to_vec();
    let plain = rows_of(&page("t", false, &rows));
    assert_eq!(
        plain[0],
        (names(["", "", "", "", "", "padding"]), 4, 12, None, None)
    );
    assert_eq!(
        plain[1],
        (names(["", "sm_80", "", "", "a", "code"]), 2, 6, None, None)
    );
    assert_eq!(
        plain[2],
        (names(["", "sm_80", "", "", "b", "code"]), 8, 24, None, None)
    );
    assert_eq!(plain.len(), 3);
    let compared = rows_of(&page("t", true, &rows));
    assert_eq!(compared[1].3, None, "what is new has no old size");
    assert_eq!((compared[2].3, compared[2].4), (Some(9), Some(5)));
}

#[test]
fn any_name_comes_back_as_it_was() {
    // Outside of the basic plane, a character has two UTF-16 units. Two of these characters share
    // the first unit.
    let kernels = [
        "</script><img src=x onerror=alert(1)>",
        "a\u{1f600}b",
        "a\u{1f601}b",
        "a\u{2028}\u{2029}\n\t\"'&\0",
        "é",
        "ê",
        "{{title}}",
    ];
    let rows: Vec<PageRow> = kernels
        .iter()
        .map(|kernel| row("gfx90a", kernel, "code", 1))
        .collect();
    let mut found: Vec<String> = rows_of(&page("t", false, &rows))
        .into_iter()
        .map(|(names, ..)| names[4].clone())
        .collect();
    found.sort();
    let mut expected = kernels.map(str::to_owned);
    expected.sort();
    assert_eq!(found, expected);
}

#[test]
fn hostile_names_are_text() {
    let hostile = "</script></noscript><img src=x onerror='alert(1)'>\" {{data}}";
    let page = page(hostile, false, &[row(hostile, hostile, hostile, 1)]);
    assert!(!page.contains("<img"), "{page}");
    assert_eq!(page.matches("</noscript>").count(), 1);
    assert_eq!(page.matches("</script>").count(), 2);
    // The title (twice), the architecture (twice) and the kernel. Text that looks like a
    // placeholder stays unchanged.
    let escaped = "&lt;/script&gt;&lt;/noscript&gt;&lt;img src=x onerror=&#39;alert(1)&#39;&gt;&quot; {{data}}";
    assert_eq!(page.matches(escaped).count(), 5, "{page}");
}

#[test]
fn the_policy_allows_the_page_alone() {
    let page = page("t", false, &[row("gfx90a", "k", "code", 1)]);
    assert!(
        page.contains("content=\"default-src 'none'; script-src 'sha256-"),
        "{page}"
    );
    let elsewhere = [
        "http:",
        "https:",
        "//cdn",
        "@import",
        "url(",
        "src=\"",
        "fetch(",
        "XMLHttpRequest",
        "innerHTML",
        "eval(",
    ];
    for word in elsewhere {
        assert!(!page.contains(word), "`{word}` is in the page");
    }
}

#[test]
fn nothing_is_a_page_as_well() {
    assert_eq!(rows_of(&page("t", true, &[])), []);
}
