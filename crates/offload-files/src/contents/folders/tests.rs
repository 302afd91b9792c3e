//! Tests with files and directories under several names, and with circular links.

use std::os::unix::fs::symlink;
use std::sync::Arc;

use super::*;
use offld_system::session::SessionOptions;
use offld_system::shell::Shell;

/// The files of `paths` in `folder`, each with its other names.
fn found(folder: &Path, paths: &[&str]) -> Vec<String> {
    let shell = Arc::new(Shell::from_write("test", Box::new(std::io::sink())));
    let session = Session::new(shell, SessionOptions::default());
    let paths: Vec<PathBuf> = paths.iter().map(|path| folder.join(path)).collect();
    let (found, faults) = expand(&paths, &session);
    assert!(faults.is_empty(), "{faults:?}");
    let name = |path: &Path| path.strip_prefix(folder).unwrap().display().to_string();
    let names = |file: &Found| {
        [&file.path]
            .into_iter()
            .chain(&file.also)
            .map(|path| name(path))
            .collect::<Vec<_>>()
    };
    found.iter().map(|file| names(file).join(" = ")).collect()
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for path in [
        "top/a.txt",
        "top/a/file",
        "top/z/file",
        "out/lib/file",
        "out/other",
    ] {
        std::fs::create_dir_all(folder.path().join(path).parent().unwrap()).unwrap();
        std::fs::write(folder.path().join(path), path).unwrap();
    }
    folder
}

#[test]
fn files_are_in_the_order_of_their_names_and_named_ones_as_often_as_they_are() {
    let folder = folder();
    assert_eq!(
        found(folder.path(), &["top"]),
        ["top/a/file", "top/a.txt", "top/z/file"]
    );
    assert_eq!(
        found(folder.path(), &["top/z", "top", "top"]),
        ["top/z/file", "top/a/file", "top/a.txt"]
    );
    assert_eq!(
        found(folder.path(), &["out/other", "out/other", "out"]),
        ["out/other = out/other", "out/other", "out/lib/file"]
    );
    assert_eq!(found(folder.path(), &["none"]), ["none"]);
}

#[test]
fn a_file_is_one_file_under_all_its_names() {
    let folder = folder();
    let top = folder.path().join("top");
    symlink("z/file", top.join("0")).unwrap();
    symlink("../../out/other", top.join("a/link")).unwrap();
    symlink("link", top.join("a/chain")).unwrap();
    symlink("nowhere", top.join("a/dangling")).unwrap();
    std::fs::hard_link(top.join("a.txt"), top.join("z/hard")).unwrap();
    let expected = [
        "top/a/chain = top/a/link",
        "top/a/file",
        "top/a.txt = top/z/hard",
        "top/z/file = top/0",
    ];
    assert_eq!(found(folder.path(), &["top"]), expected);
    // A name without a link takes precedence.
    let all = found(folder.path(), &["top", "out"]);
    assert_eq!(
        all[3..],
        ["out/lib/file", "out/other = top/a/chain = top/a/link"]
    );
}

#[test]
fn links_to_folders_are_followed_once_and_never_upwards() {
    let folder = folder();
    let top = folder.path().join("top");
    symlink("../out/lib", top.join("m")).unwrap();
    symlink("m", top.join("n")).unwrap();
    symlink("a", top.join("b")).unwrap();
    for (link, to) in [
        ("a/self", "."),
        ("a/up", ".."),
        ("a/around", "../.."),
        ("a/root", "/"),
        ("a/loop", "loop"),
    ] {
        symlink(to, top.join(link)).unwrap();
    }
    symlink("../../out", folder.path().join("out/lib/back")).unwrap();
    assert_eq!(
        found(folder.path(), &["top"]),
        ["top/a/file", "top/a.txt", "top/m/file", "top/z/file"]
    );
    // A link in the arguments is followed.
    assert_eq!(found(folder.path(), &["top/m"]), ["top/m/file"]);
}

fn selection(only: &[&str], exclude: &[&str]) -> Selection {
    let owned = |texts: &[&str]| {
        texts
            .iter()
            .map(|text| (*text).to_owned())
            .collect::<Vec<_>>()
    };
    Selection::new(&owned(only), &owned(exclude)).unwrap()
}

#[test]
fn a_name_is_matched_as_a_path_and_by_its_last_component() {
    let name = Path::new("pkg/lib/libcuda12.so");
    for (only, exclude, expected) in [
        (&[][..], &[][..], Choice::Selected),
        (&["libcuda*"], &[], Choice::Selected),
        (&["pkg/*.so"], &[], Choice::Selected),
        (&["*cuda*"], &["*12*"], Choice::Excluded),
        (&["libhip*"], &[], Choice::Within),
        (&[], &["lib"], Choice::Selected),
    ] {
        assert_eq!(
            selection(only, exclude).of(name, None),
            expected,
            "{only:?} {exclude:?}"
        );
    }
}

#[test]
fn members_of_a_selected_file_are_selected_unless_they_are_excluded() {
    let selection = selection(&["*.whl"], &["*xpu*"]);
    let wheel = selection.of(Path::new("dist/a.whl"), None);
    assert_eq!(wheel, Choice::Selected);
    assert_eq!(
        selection.of(Path::new("a/liba.so"), Some(wheel)),
        Choice::Selected
    );
    assert_eq!(
        selection.of(Path::new("a/libxpu.so"), Some(wheel)),
        Choice::Excluded
    );
    assert_eq!(selection.of(Path::new("other.zip"), None), Choice::Within);
    assert_eq!(
        selection.unmatched_only().count() + selection.unmatched_exclude().count(),
        0
    );
}

#[test]
fn patterns_without_a_match_are_told_and_invalid_ones_are_errors() {
    let selection = selection(&["a*", "b*"], &["c"]);
    selection.of(Path::new("abc"), None);
    assert_eq!(selection.unmatched_only().collect::<Vec<_>>(), ["b*"]);
    assert_eq!(selection.unmatched_exclude().collect::<Vec<_>>(), ["c"]);
    let error = Selection::new(&["[".to_owned()], &[])
        .unwrap_err()
        .to_string();
    assert!(error.contains("invalid pattern `[` of --only"), "{error}");
}
