//! What the source promises about itself (ARCHITECTURE.md), held by reading it: who may use whom, which file starts processes,
//! which folder knows LLVM, where `unsafe` is, how long a function and a file may be.

#[path = "hygiene/source.rs"]
mod source;

use std::collections::BTreeSet;
use std::path::Path;

use source::{Source, bare, functions, paths, places, product, sources};

/// A stage of the line, whose functions only `pipeline` calls.
const STAGES: [&str; 7] = ["inputs", "scan", "select", "device", "bundle", "wrap", "host"];

/// Whom each module may use. Nothing points back up; formats know errors and the model, and nothing else.
const ARROWS: &[(&str, &str)] = &[
    ("error", ""),
    ("model", ""),
    ("target", ""),
    ("shell", ""),
    ("scratch", ""),
    ("bytes", ""),
    ("copy", ""),
    ("trace", ""),
    ("args", ""),
    ("formats", "error model"),
    ("progress", "shell"),
    ("signals", "error trace"),
    ("run", "args error scratch shell signals trace"),
    ("session", "progress run scratch shell signals trace"),
    ("outputs", "copy error session signals"),
    // What outlives the process; of links it knows nothing.
    ("cache", "error session"),
    ("piece", "bytes formats llvm outputs session"),
    ("toolchain", "run session"),
    ("bundler", "bytes copy error formats llvm outputs piece session shell toolchain"),
    ("inputs", "args bytes error formats model session target trace"),
    ("scan", "args error formats model session target trace inputs llvm"),
    ("select", "args error formats model session target trace inputs scan"),
    ("device", "args bytes cache error formats model progress run session shell target toolchain trace inputs scan select"),
    ("bundle", "args copy error formats model run session target toolchain trace device"),
    ("wrap", "args bytes copy error formats model session target trace inputs bundle llvm"),
    ("host", "args bytes error formats model run session target toolchain trace inputs scan"),
    // Beside the line, not on it: it asks what the stages would find, before they run.
    ("reproduce", "args bytes formats host inputs run scan session target toolchain"),
    // Beside the line, too: whatever is in a file, linked or not.
    ("inspect", "bytes error formats llvm model outputs scratch session signals piece"),
    // Plans are `wrap`'s: data, without types of LLVM's.
    ("llvm", "error formats model wrap"),
    // The wrappers by themselves: what `wrap` plans, written in every form.
    ("wrapper", "bytes error formats llvm model outputs session wrap"),
    (
        "pipeline",
        "args bundle cache device error formats host inputs llvm model reproduce run scan scratch select session shell signals target toolchain trace wrap",
    ),
    ("packager", "formats inputs llvm model outputs piece session"),
    (
        "cli",
        "args bundler cache error formats inputs inspect llvm model packager pipeline progress session shell toolchain trace wrapper",
    ),
    ("main", ""),
    ("lib", ""),
];

/// Functions of a stage that another stage calls, and why that is none of its work.
const SHARED: &[(&str, &str)] = &[
    ("inputs::magic::magic", "what bytes are, told by their first; device images are asked, too"),
    ("inputs::worth_threads", "how much work is worth starting threads for: one measure for all that go over the leaves"),
    ("scan::device_symbols", "a symbol table is read when selection turns out to need it"),
    ("device::of_kind", "a view of the stage's own result"),
];

const LONGEST_FUNCTION: usize = 70;
const LONGEST_FILE: usize = 400;
/// Functions that may be longer, and why.
const LONG_FUNCTIONS: &[(&str, &str)] = &[];
/// Files that may be longer, and why.
const LONG_FILES: &[(&str, &str)] = &[];

fn fail_on(what: &str, found: Vec<String>) {
    assert!(found.is_empty(), "{what}:\n  {}", found.join("\n  "));
}

/// Every path below `crate::` that a source names, and where.
fn crate_paths(source: &Source) -> Vec<(usize, String)> {
    let text = source.product();
    let each = text.match_indices("crate::").filter(|(at, _)| !text[..*at].ends_with('$'));
    each.flat_map(|(at, name)| paths(&text[at + name.len()..]).into_iter().map(move |path| (at, path))).collect()
}

#[test]
fn arrows_point_down() {
    let mut wrong = Vec::new();
    for source in product() {
        let module = source.module().unwrap();
        let Some((_, allowed)) = ARROWS.iter().find(|(name, _)| *name == module) else {
            wrong.push(format!("{}: `{module}` has no row in ARROWS", source.path));
            continue;
        };
        for (at, path) in crate_paths(&source) {
            let used = path.split("::").next().unwrap_or_default();
            if used != module && !allowed.split(' ').any(|name| name == used) {
                wrong.push(format!("{}: `{module}` uses `{path}`", source.line(at)));
            }
        }
    }
    fail_on("arrows that are not in ARROWS", wrong);
}

#[test]
fn the_arrows_make_no_circle() {
    let mut done: BTreeSet<&str> = BTreeSet::new();
    let open = |done: &BTreeSet<&str>| {
        ARROWS.iter().find(|(name, uses)| {
            let below = uses.split(' ').filter(|used| !used.is_empty());
            // The one circle: plans are data of `wrap`'s, which `llvm` makes objects of.
            !done.contains(name) && below.filter(|used| (*name, *used) != ("llvm", "wrap")).all(|used| done.contains(used))
        })
    };
    while let Some((name, _)) = open(&done) {
        done.insert(name);
    }
    let left: Vec<&str> = ARROWS.iter().map(|(name, _)| *name).filter(|name| !done.contains(name)).collect();
    assert!(left.is_empty(), "in a circle, or above one: {left:?}");
}

#[test]
fn stages_do_not_call_stages() {
    let is_type = |path: &str| path.rsplit("::").next().is_some_and(|name| name.starts_with(char::is_uppercase));
    let mut wrong = Vec::new();
    let mut seen = BTreeSet::new();
    for source in product().iter().filter(|source| STAGES.contains(&source.module().unwrap())) {
        for (at, path) in crate_paths(source) {
            let stage = path.split("::").next().unwrap_or_default();
            if !STAGES.contains(&stage) || source.module() == Some(stage) || is_type(&path) {
                continue;
            }
            // A module's name stands for what is called through it.
            let path = path.trim_end_matches("::self").to_owned();
            let through = called_in(source.product(), &path);
            let calls = if through.is_empty() { vec![path] } else { through };
            for call in calls.into_iter().filter(|call| !is_type(call)) {
                // `Type::new` and the like are the type's.
                let of_type = call.split("::").any(|part| part.starts_with(char::is_uppercase));
                match SHARED.iter().find(|(name, _)| *name == call) {
                    Some((name, _)) => drop(seen.insert(*name)),
                    None if of_type => {}
                    None => wrong.push(format!("{}: `{call}`", source.line(at))),
                }
            }
        }
    }
    fail_on("functions of another stage", wrong);
    let stale: Vec<&str> = SHARED.iter().map(|(name, _)| *name).filter(|name| !seen.contains(name)).collect();
    assert!(stale.is_empty(), "no longer called by another stage: {stale:?}");
}

/// What is named of an imported module: `scan::device_symbols` of `scan`.
fn called_in(text: &str, module: &str) -> Vec<String> {
    let last = module.rsplit("::").next().unwrap_or(module);
    let uses = places(text, last).filter(|at| !text[..*at].ends_with("::"));
    let below = uses.filter_map(|at| text[at + last.len()..].strip_prefix("::"));
    below.flat_map(paths).filter(|path| !path.is_empty()).map(|path| format!("{module}::{path}")).collect()
}

#[test]
fn one_file_starts_processes() {
    let starts = |source: &Source| {
        let text = source.product();
        let imported = text.match_indices("std::process::").any(|(at, name)| {
            paths(&text[at + name.len()..]).iter().any(|path| path == "Command" || path.starts_with("Command::"))
        });
        imported || text.contains("process::Command") || text.contains("CommandExt")
    };
    let all: Vec<String> = product().into_iter().filter(starts).map(|source| source.path).collect();
    assert_eq!(all, ["src/run.rs"]);
}

#[test]
fn one_folder_knows_llvm() {
    let knows = |source: &Source| ["inkwell", "llvm_sys"].iter().any(|name| places(&source.bare, name).next().is_some());
    let outside: Vec<String> =
        product().into_iter().filter(knows).map(|source| source.path).filter(|path| !path.starts_with("src/llvm/")).collect();
    fail_on("LLVM outside of src/llvm", outside);
}

#[test]
fn nothing_exits_but_main() {
    let exits = |source: &Source| source.product().contains("process::exit") || source.product().contains("process::abort");
    fail_on("process::exit", product().into_iter().filter(exits).map(|source| source.path).collect());
}

#[test]
fn unsafe_code_says_why() {
    let manifest = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml")).unwrap();
    assert!(manifest.contains("unsafe_code = \"deny\""), "the compiler refuses what has no exception");
    let mut wrong = Vec::new();
    for source in sources(&["src"]) {
        for at in places(&source.bare, "unsafe_code") {
            let before = source.bare[..at].trim_end();
            let after = source.bare[at + "unsafe_code".len()..].split_whitespace().collect::<Vec<_>>().join(" ");
            if !before.ends_with("#[expect(") || !after.starts_with(", reason =") {
                wrong.push(source.line(at));
            }
        }
    }
    fail_on("not `#[expect(unsafe_code, reason = …)]`", wrong);
}

#[test]
fn every_file_says_what_it_is() {
    let all = sources(&["src", "tests", "examples", "build.rs"].iter().copied().filter(there).collect::<Vec<_>>());
    let silent = |source: &Source| !source.text.starts_with("//! ");
    fail_on("no `//!` on the first line", all.into_iter().filter(silent).map(|source| source.path).collect());
}

fn there(name: &&str) -> bool {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name).exists()
}

#[test]
fn nothing_is_left_to_do() {
    let mut found = Vec::new();
    for source in sources(&["src", "tests"]) {
        for name in ["todo!", "unimplemented!", "dbg!"] {
            found.extend(source.bare.match_indices(name).map(|(at, _)| format!("{}: {name}", source.line(at))));
        }
    }
    fail_on("unfinished", found);
}

#[test]
fn functions_are_short() {
    let mut long = Vec::new();
    let mut excused = BTreeSet::new();
    for source in sources(&["src", "tests"]) {
        for (name, at, lines) in functions(&source.bare) {
            if lines <= LONGEST_FUNCTION {
                continue;
            }
            match LONG_FUNCTIONS.iter().find(|(own, _)| *own == name) {
                Some((own, _)) => drop(excused.insert(*own)),
                None => long.push(format!("{}: `{name}` has {lines} lines", source.line(at))),
            }
        }
    }
    fail_on("functions that are too long", long);
    assert_eq!(excused.len(), LONG_FUNCTIONS.len(), "a function is no longer as long as its excuse says: {excused:?} are");
}

#[test]
fn files_are_short() {
    let excuse = |source: &Source| LONG_FILES.iter().find(|(path, _)| *path == source.path);
    let long: Vec<Source> =
        sources(&["src", "tests"]).into_iter().filter(|source| source.text.lines().count() > LONGEST_FILE).collect();
    let unexcused = long.iter().filter(|source| excuse(source).is_none());
    let shown = |source: &Source| format!("{} has {} lines", source.path, source.text.lines().count());
    fail_on("files that are too long", unexcused.map(shown).collect());
    assert_eq!(long.len(), LONG_FILES.len(), "a file is no longer as long as its excuse says");
}

#[test]
fn the_reader_of_this_file_reads_rust() {
    let text = "fn a<'x>(b: &'x str) -> char {\n  // fn c() {\n  let _ = (\"}\\\"\", r#\"}\"}\"#, b'}', '\\'', 'x'); '{' }\nfn d();\nconst E: fn(u8) = f;";
    let bare = bare(text);
    assert_eq!(bare.lines().count(), text.lines().count());
    assert_eq!(functions(&bare), [("a".to_owned(), 0, 3)]);
    assert_eq!(paths("a::{self, b::{C, d}, E};"), ["a::self", "a::b::C", "a::b::d", "a::E"]);
    assert_eq!(paths("a::b::c(1)"), ["a::b::c"]);
}
