//! Members that linkers extract, on handwritten symbol tables. The expected results are those of
//! GNU ld 2.40 and ld.lld 22.

use super::*;
use crate::link::select::line_order;
use crate::link::select::tests::facts;

/// Reads a command line of `files`: one object each, or several in a lazy archive. Returns the
/// objects in reading order.
fn order(
    reading: Reading,
    all: &[HostFacts<'_>],
    files: &[(bool, std::ops::Range<usize>)],
    options: SelectOptions,
) -> Vec<usize> {
    let loads = files.iter().map(|(_, objects)| Load {
        objects: objects.clone(),
        ..Load::default()
    });
    let loads = if options.loads.is_empty() {
        loads.collect()
    } else {
        options.loads.clone()
    };
    let lazy: Vec<bool> = (0..all.len())
        .map(|object| {
            files
                .iter()
                .any(|(lazy, objects)| *lazy && objects.contains(&object))
        })
        .collect();
    let origins: Vec<String> = (0..all.len()).map(|object| format!("{object}.o")).collect();
    line_order::read(
        all,
        &lazy,
        &origins,
        &SelectOptions {
            reading,
            loads,
            ..options
        },
        &[],
    )
    .order
}

#[test]
fn archives_before_their_users() {
    // lib.a(f), main, lib2.a(f): GNU ld extracts the second f. ld.lld extracts the first, and reads
    // it after main.
    let all = [
        facts(&["f"], &[]),
        facts(&["main"], &["f"]),
        facts(&["f"], &[]),
    ];
    let files = [(true, 0..1), (false, 1..2), (true, 2..3)];
    assert_eq!(
        order(Reading::InTurn, &all, &files, SelectOptions::default()),
        [1, 2]
    );
    assert_eq!(
        order(Reading::Remembering, &all, &files, SelectOptions::default()),
        [1, 0]
    );
}

#[test]
fn members_in_the_order_in_which_they_are_taken() {
    // main needs a. In the archive, b precedes a, which needs b.
    let all = [
        facts(&["main"], &["a"]),
        facts(&["b"], &[]),
        facts(&["a"], &["b"]),
    ];
    let files = [(false, 0..1), (true, 1..3)];
    for reading in [Reading::InTurn, Reading::Remembering] {
        assert_eq!(
            order(reading, &all, &files, SelectOptions::default()),
            [0, 2, 1]
        );
    }
    // Two archives that need each other: GNU ld reads them again only in a group.
    let all = [
        facts(&["main"], &["a"]),
        facts(&["b"], &[]),
        facts(&["a"], &["b"]),
    ];
    let files = [(false, 0..1), (true, 1..2), (true, 2..3)];
    assert_eq!(
        order(Reading::InTurn, &all, &files, SelectOptions::default()),
        [0, 2]
    );
    assert_eq!(
        order(Reading::Remembering, &all, &files, SelectOptions::default()),
        [0, 2, 1]
    );
    let load = |objects, group| Load {
        objects,
        group,
        ..Load::default()
    };
    let loads = vec![load(0..1, None), load(1..2, Some(0)), load(2..3, Some(0))];
    assert_eq!(
        order(
            Reading::InTurn,
            &all,
            &files,
            SelectOptions {
                loads,
                ..SelectOptions::default()
            }
        ),
        [0, 2, 1]
    );
    // The same archive twice.
    let loads = vec![
        load(0..1, None),
        load(1..2, None),
        load(2..3, None),
        load(1..2, None),
    ];
    assert_eq!(
        order(
            Reading::InTurn,
            &all,
            &files,
            SelectOptions {
                loads,
                ..SelectOptions::default()
            }
        ),
        [0, 2, 1]
    );
}

#[test]
fn shared_libraries_define_and_need() {
    let all = [
        facts(&["main"], &["f"]),
        facts(&["f"], &[]),
        facts(&["g"], &[]),
    ];
    let files = [(false, 0..1), (true, 1..3)];
    let shared = vec![SharedLibrary {
        name: "l.so".into(),
        defines: vec![b"f".to_vec()],
        needs: vec![b"g".to_vec()],
    }];
    let library = |as_needed| Load {
        library: Some(0),
        as_needed,
        ..Load::default()
    };
    let load = |objects| Load {
        objects,
        ..Load::default()
    };
    for reading in [Reading::InTurn, Reading::Remembering] {
        let loads = vec![load(0..1), library(true), load(1..3)];
        assert_eq!(
            order(
                reading,
                &all,
                &files,
                SelectOptions {
                    loads,
                    shared: shared.clone(),
                    ..SelectOptions::default()
                }
            ),
            [0, 2]
        );
    }
    // GNU ld forgets a library that nothing needs yet.
    let loads = vec![library(true), load(0..1), load(1..3)];
    let options = || SelectOptions {
        loads: loads.clone(),
        shared: shared.clone(),
        ..SelectOptions::default()
    };
    assert_eq!(order(Reading::InTurn, &all, &files, options()), [0, 1]);
    assert_eq!(order(Reading::Remembering, &all, &files, options()), [0, 2]);
}

#[test]
fn versions_weak_references_and_late_roots() {
    let weak = |name: &'static str| HostFacts {
        undefined: vec![crate::link::scan::Need {
            name: name.as_bytes().into(),
            weak: true,
        }],
        ..facts(&["main"], &[])
    };
    let files = [(false, 0..1), (true, 1..3)];
    for reading in [Reading::InTurn, Reading::Remembering] {
        let all = [
            facts(&["main"], &["f"]),
            facts(&["f@@V2"], &["g@V1"]),
            facts(&["g@@V1"], &[]),
        ];
        assert_eq!(
            order(reading, &all, &files, SelectOptions::default()),
            [0, 1, 2]
        );
        let all = [weak("f"), facts(&["f"], &[]), facts(&["g"], &[])];
        assert_eq!(order(reading, &all, &files, SelectOptions::default()), [0]);
        let roots = vec!["g".to_owned(), "f".to_owned()];
        let of_line = SelectOptions {
            roots: roots.clone(),
            ..SelectOptions::default()
        };
        let at_end = SelectOptions {
            late_roots: roots.clone(),
            ..SelectOptions::default()
        };
        let both = SelectOptions {
            roots: vec!["f".to_owned()],
            late_roots: roots,
            ..SelectOptions::default()
        };
        if reading == Reading::Remembering {
            assert_eq!(order(reading, &all, &files, both), [0, 1, 2]);
        }
        let options = match reading {
            Reading::InTurn => of_line,
            _ => at_end,
        };
        let taken = order(reading, &all, &files, options);
        assert_eq!(
            taken,
            if reading == Reading::InTurn {
                [0, 1, 2]
            } else {
                [0, 2, 1]
            }
        );
        let all = [
            facts(&["main"], &["f"]),
            facts(&["__wrap_f"], &["__real_f"]),
            facts(&["f"], &[]),
        ];
        let options = SelectOptions {
            wrapped: vec!["f".into()],
            ..SelectOptions::default()
        };
        let taken = order(reading, &all, &files, options);
        assert_eq!(
            taken,
            if reading == Reading::InTurn {
                [0, 1, 2]
            } else {
                [0, 2, 1]
            }
        );
    }
    let all = [
        facts(&["main"], &[]),
        facts(&["abc"], &[]),
        facts(&["b"], &[]),
    ];
    let globs = vec![glob::Pattern::new("a*").unwrap()];
    let options = SelectOptions {
        globs,
        ..SelectOptions::default()
    };
    assert_eq!(
        order(Reading::Remembering, &all, &files, options.clone()),
        [0, 1]
    );
    let options = SelectOptions {
        alternate_names: vec![("x".into(), "b".into())],
        ..options
    };
    let all = [
        facts(&["main"], &["x"]),
        facts(&["abc"], &[]),
        facts(&["b"], &[]),
    ];
    assert_eq!(
        order(Reading::Remembering, &all, &files, options.clone()),
        [0, 1, 2]
    );
    // GNU ld needs `b` if `x` is undefined at the position of the script.
    let script = || Load {
        provided: vec![("x".into(), "b".into())],
        ..Load::default()
    };
    let file = |objects| Load {
        objects,
        ..Load::default()
    };
    for (loads, expected) in [
        (vec![file(0..1), script(), file(1..3)], vec![0, 2]),
        (vec![script(), file(0..1), file(1..3)], vec![0]),
        (vec![file(0..1), file(1..3), script()], vec![0]),
    ] {
        let options = SelectOptions {
            loads,
            ..SelectOptions::default()
        };
        assert_eq!(order(Reading::InTurn, &all, &files, options), expected);
    }
}
