//! Rules for the source (ARCHITECTURE.md) that no lint can check: which modules may use each other,
//! which program may use LLVM, how long a file may be. Clippy checks the other rules, about
//! processes, `unsafe`, `unwrap` and the length of functions (clippy.toml and the lints in
//! Cargo.toml).

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot read the sources has failed"
)]

#[path = "hygiene/source.rs"]
mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use source::{Source, bare, paths, places, product, room_of, sources};

/// The stages of the link. Only `link::pipeline` may call their functions.
const STAGES: [&str; 7] = [
    "link::inputs",
    "link::scan",
    "link::select",
    "link::device",
    "link::payload",
    "link::register",
    "link::host",
];

/// The modules of `src`, from the highest to the lowest. A module may use only modules below it.
/// What the crates may use of each other is in their manifests.
const LAYERS: [&str; 21] = [
    "main",
    "bin::offld-llvm",
    "capi",
    "facade",
    "cli",
    "tools::wrapper",
    "tools::doctor",
    "tools::explain",
    "link::pipeline",
    "link::reproduce",
    "link::host",
    "link::register",
    "link::payload",
    "link::device",
    "link::select",
    "link::scan",
    "link::inputs",
    "build_log",
    "llvm",
    "toolchain",
    "args",
];

/// Functions of a stage that another stage may call, each with the reason.
const SHARED: &[(&str, &str)] = &[
    (
        "link::inputs::map_all",
        "a loop over objects or files, with threads if their sizes are worth it",
    ),
    (
        "link::inputs::worth_threads",
        "the amount of work that is worth starting threads: one limit for all loops over objects",
    ),
    (
        "link::scan::device_symbols",
        "a symbol table is read only if selection needs it",
    ),
    (
        "link::payload::sycl_binary",
        "one container of all SYCL images, for the registration and for `--emit-fatbin-only`",
    ),
    (
        "link::payload::push_image",
        "an image's bytes, from a file or decompressed, as part of a container",
    ),
];

const LONGEST_FILE: usize = 900;
/// Files that may be longer, each with the reason.
const LONG_FILES: &[(&str, &str)] = &[];

fn fail_on(what: &str, found: Vec<String>) {
    assert!(found.is_empty(), "{what}:\n  {}", found.join("\n  "));
}

/// Every path below `crate::` in a source, with its offset.
fn crate_paths(source: &Source) -> Vec<(usize, String)> {
    let text = source.product();
    let each = text
        .match_indices("crate::")
        .filter(|(at, _)| !text[..*at].ends_with('$'));
    each.flat_map(|(at, name)| {
        paths(&text[at + name.len()..])
            .into_iter()
            .map(move |path| (at, path))
    })
    .collect()
}

#[test]
fn modules_use_only_modules_below_them() {
    let place = |room: &str| LAYERS.iter().position(|name| *name == room);
    let mut wrong = Vec::new();
    let mut seen = BTreeSet::new();
    for source in product() {
        let Some(room) = source.room() else { continue };
        // `lib` and the files that only list modules use nothing themselves. `link` also has a
        // function for a fuzz target, which is not part of a program.
        if ["lib", "link", "tools"].contains(&room.as_str()) {
            continue;
        }
        let Some(own) = place(&room) else {
            wrong.push(format!("{}: `{room}` is not in LAYERS", source.path));
            continue;
        };
        seen.insert(own);
        for (at, path) in crate_paths(&source) {
            let used = room_of(&path);
            let below = place(&used).is_none_or(|used| used >= own);
            if !below {
                wrong.push(format!("{}: `{room}` uses `{path}`", source.line(at)));
            }
        }
    }
    fail_on("uses of a higher module", wrong);
    assert_eq!(
        seen.len(),
        LAYERS.len(),
        "a module of LAYERS does not exist"
    );
}

#[test]
fn stages_do_not_call_stages() {
    let is_type = |path: &str| {
        path.rsplit("::")
            .next()
            .is_some_and(|name| name.starts_with(char::is_uppercase))
    };
    let mut wrong = Vec::new();
    let mut seen = BTreeSet::new();
    for source in product().iter().filter(|source| {
        source
            .room()
            .is_some_and(|room| STAGES.contains(&room.as_str()))
    }) {
        for (at, path) in crate_paths(source) {
            let stage = room_of(&path);
            if !STAGES.contains(&stage.as_str())
                || source.room().is_some_and(|room| room == stage)
                || is_type(&path)
            {
                continue;
            }
            // A path to a module stands for the functions that are called through it.
            let path = path.trim_end_matches("::self").to_owned();
            let through = called_in(source.product(), &path);
            let calls = if through.is_empty() {
                vec![path]
            } else {
                through
            };
            for call in calls.into_iter().filter(|call| !is_type(call)) {
                // Associated functions such as `Type::new` are allowed.
                let of_type = call
                    .split("::")
                    .any(|part| part.starts_with(char::is_uppercase));
                match SHARED.iter().find(|(name, _)| *name == call) {
                    Some((name, _)) => drop(seen.insert(*name)),
                    None if of_type => {}
                    None => wrong.push(format!("{}: `{call}`", source.line(at))),
                }
            }
        }
    }
    fail_on("functions of another stage", wrong);
    let stale: Vec<&str> = SHARED
        .iter()
        .map(|(name, _)| *name)
        .filter(|name| !seen.contains(name))
        .collect();
    assert!(
        stale.is_empty(),
        "no longer called by another stage: {stale:?}"
    );
}

/// The items of an imported module that `text` uses: `scan::device_symbols` for `scan`.
fn called_in(text: &str, module: &str) -> Vec<String> {
    let last = module.rsplit("::").next().unwrap_or(module);
    let uses = places(text, last).filter(|at| !text[..*at].ends_with("::"));
    let below = uses.filter_map(|at| text[at + last.len()..].strip_prefix("::"));
    below
        .flat_map(paths)
        .filter(|path| !path.is_empty())
        .map(|path| format!("{module}::{path}"))
        .collect()
}

#[test]
fn one_program_knows_llvm() {
    let knows = |source: &Source| {
        ["inkwell", "llvm_sys"]
            .iter()
            .any(|name| places(&source.bare, name).next().is_some())
    };
    let outside: Vec<String> = product()
        .into_iter()
        .filter(knows)
        .map(|source| source.path)
        .filter(|path| !path.starts_with("src/bin/offld-llvm/"))
        .collect();
    fail_on("LLVM outside of src/bin/offld-llvm", outside);
}

#[test]
fn every_file_says_what_it_is() {
    let all = sources(
        &["src", "crates", "tests", "examples", "build.rs"]
            .iter()
            .copied()
            .filter(exists)
            .collect::<Vec<_>>(),
    );
    let silent = |source: &Source| !source.text.starts_with("//! ");
    fail_on(
        "no `//!` on the first line",
        all.into_iter()
            .filter(silent)
            .map(|source| source.path)
            .collect(),
    );
}

/// One shell sources all parts of the benchmark. A second function with the same name would replace
/// the first, and a setting with two defaults would get the one that is read first.
#[test]
fn names_of_the_benchmark_mean_one_thing() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/parts");
    let (mut seen, mut defaults) = (BTreeSet::new(), BTreeMap::new());
    let mut twice = Vec::new();
    for part in std::fs::read_dir(folder).unwrap() {
        let path = part.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let names = text
            .lines()
            .filter_map(|line| line.split_once("() {"))
            .map(|(name, _)| name);
        let names = names.filter(|name| {
            name.chars()
                .all(|char| char.is_ascii_alphanumeric() || char == '_')
        });
        twice.extend(
            names
                .filter(|name| !seen.insert((*name).to_owned()))
                .map(|name| format!("{name} in {}", path.display())),
        );
        let settings = text
            .split("${")
            .skip(1)
            .filter_map(|rest| rest.split_once('}')?.0.split_once(":-"));
        for (name, default) in settings.filter(|(name, _)| {
            name.chars()
                .all(|char| char.is_ascii_uppercase() || char == '_')
        }) {
            let first = defaults
                .entry(name.to_owned())
                .or_insert_with(|| default.to_owned());
            if first != default {
                twice.push(format!(
                    "{name} in {}: {default}, and {first} elsewhere",
                    path.display()
                ));
            }
        }
    }
    assert!(
        seen.len() > 20 && defaults.len() > 5,
        "{seen:?} {defaults:?}"
    );
    fail_on(
        "functions or defaults that another part defines, too",
        twice,
    );
}

fn exists(name: &&str) -> bool {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name).exists()
}

#[test]
fn files_are_short() {
    let excuse = |source: &Source| LONG_FILES.iter().find(|(path, _)| *path == source.path);
    let long: Vec<Source> = sources(&["src", "crates", "tests"])
        .into_iter()
        .filter(|source| source.text.lines().count() > LONGEST_FILE)
        .collect();
    let unexcused = long.iter().filter(|source| excuse(source).is_none());
    let shown =
        |source: &Source| format!("{} has {} lines", source.path, source.text.lines().count());
    fail_on("files that are too long", unexcused.map(shown).collect());
    assert_eq!(
        long.len(),
        LONG_FILES.len(),
        "a file is no longer as long as its excuse says"
    );
}

/// The largest number of files that use each other in a circle.
const LONGEST_CIRCLE: usize = 3;

/// A file in a circle can only be understood with all files of the circle. The uses of a parent
/// module do not count, because a module shares private items with the files below it.
#[test]
fn circles_between_files_are_small() {
    let mut crates: BTreeMap<String, BTreeMap<String, Source>> = BTreeMap::new();
    for source in product() {
        let Some((root, file)) = source.path.split_once("src/") else {
            continue;
        };
        let module = file.trim_end_matches(".rs").trim_end_matches("/mod");
        let module = module.replace('/', "::");
        if !module.starts_with("bin::") && module != "main" {
            let module = if module == "lib" {
                String::new()
            } else {
                module
            };
            crates
                .entry(root.to_owned())
                .or_default()
                .insert(module, source);
        }
    }
    let (mut wrong, mut pairs) = (Vec::new(), 0);
    for files in crates.values() {
        let uses: BTreeMap<&str, BTreeSet<&str>> = files
            .iter()
            .map(|(module, source)| (module.as_str(), used_files(module, source, files)))
            .collect();
        let reached: BTreeMap<&str, BTreeSet<&str>> = uses
            .keys()
            .map(|module| (*module, reached_from(module, &uses)))
            .collect();
        let circles: BTreeSet<Vec<&str>> = reached
            .iter()
            .map(|(module, all)| {
                let back = all.iter().filter(|other| reached[*other].contains(module));
                back.copied().collect::<Vec<_>>()
            })
            .filter(|circle| circle.len() > 1)
            .collect();
        pairs += circles.len();
        let large = circles
            .iter()
            .filter(|circle| circle.len() > LONGEST_CIRCLE);
        wrong.extend(large.map(|circle| circle.join(" ")));
    }
    fail_on("circles of too many files", wrong);
    assert!(pairs > 0, "the small circles that exist are not found");
}

/// The modules of `files` that the code of `module` names.
fn used_files<'f>(
    module: &str,
    source: &Source,
    files: &'f BTreeMap<String, Source>,
) -> BTreeSet<&'f str> {
    let text = source.product();
    let below = |module: &str, path: &str| match module {
        "" => path.to_owned(),
        module => format!("{module}::{path}"),
    };
    let mut named: Vec<String> = crate_paths(source)
        .into_iter()
        .map(|(_, path)| path)
        .collect();
    // A chain of `super::` is found at its first word.
    let supers = places(text, "super").filter(|at| !text[..*at].ends_with("::"));
    for at in supers {
        let (mut rest, mut parent) = (&text[at..], module);
        while let Some(after) = rest.strip_prefix("super::") {
            rest = after;
            parent = parent.rsplit_once("::").map_or("", |(parent, _)| parent);
        }
        named.extend(paths(rest).iter().map(|path| below(parent, path)));
    }
    let children = text.match_indices("mod ").filter_map(|(at, word)| {
        let (name, _) = text[at + word.len()..].split_once(';')?;
        let is_name = name.chars().all(|c| c.is_alphanumeric() || c == '_');
        is_name.then_some(name)
    });
    for child in children {
        let mut used = places(text, child).filter(|at| !text[..*at].ends_with("::"));
        if used.any(|at| text[at + child.len()..].starts_with("::")) {
            named.push(below(module, child));
        }
    }
    let file_of = |path: &String| {
        let mut path = path.as_str();
        loop {
            if let Some((file, _)) = files.get_key_value(path) {
                return Some(file.as_str());
            }
            path = path.rsplit_once("::")?.0;
        }
    };
    let is_parent = |file: &str| file == module || module.starts_with(&format!("{file}::"));
    named
        .iter()
        .filter_map(file_of)
        .filter(|file| !is_parent(file) && !file.is_empty())
        .collect()
}

/// All modules that `module` uses directly or through others.
fn reached_from<'f>(
    module: &str,
    uses: &BTreeMap<&'f str, BTreeSet<&'f str>>,
) -> BTreeSet<&'f str> {
    let mut reached = BTreeSet::new();
    let mut waiting = vec![module];
    while let Some(next) = waiting.pop() {
        for used in &uses[next] {
            if reached.insert(*used) {
                waiting.push(used);
            }
        }
    }
    reached
}

#[test]
fn sources_are_parsed() {
    let text = "fn a<'x>(b: &'x str) -> char {\n  // fn c() {\n  let _ = (\"}\\\"\", r#\"}\"}\"#, b'}', '\\'', 'x'); '{' }\nfn d();\nconst E: fn(u8) = f;";
    let bare = bare(text);
    assert_eq!(bare.lines().count(), text.lines().count());
    assert_eq!(bare.split_whitespace().next_back(), Some("f;"));
    assert_eq!(
        bare.matches(['{', '}']).count(),
        2,
        "of the braces only those around the body are code: {bare}"
    );
    assert_eq!(
        paths("a::{self, b::{C, d}, E};"),
        ["a::self", "a::b::C", "a::b::d", "a::E"]
    );
    assert_eq!(paths("a::b::c(1)"), ["a::b::c"]);
}
