//! Selection on handwritten symbol tables.

use std::borrow::Cow;

use super::*;
use crate::link::scan::{Definition, Form, Need};
use offload_formats::model::Origin;

fn image(input_object: usize, triple: &str, arch: &str) -> DeviceImage<'static> {
    DeviceImage {
        modules: None,
        form: Form::Code,
        debug: false,
        input_object,
        origin: Origin::file(format!("{input_object}.o").as_ref()),
        triple: triple.to_owned(),
        arch: arch.to_owned(),
        kinds: OffloadKinds::default().with(OffloadKind::OpenMp),
        raw_section: false,
        bytes: b"no symbols in here".as_slice().into(),
    }
}

fn gfx90a<const N: usize>(objects: [usize; N]) -> [DeviceImage<'static>; N] {
    objects.map(|object| image(object, AMD, "gfx90a"))
}

pub(super) fn facts(defined: &[&'static str], undefined: &[&'static str]) -> HostFacts<'static> {
    let name = |name: &&'static str| Cow::Borrowed(name.as_bytes());
    HostFacts {
        defined: defined
            .iter()
            .map(|symbol| Definition {
                name: name(symbol),
                weak: false,
                common: false,
            })
            .collect(),
        undefined: undefined
            .iter()
            .map(|symbol| Need {
                name: name(symbol),
                weak: false,
            })
            .collect(),
        generation: Some(Generation::Llvm21),
        ..HostFacts::default()
    }
}

/// Returns the inputs of each job, as `arch: objects`.
fn selected(found: &[DeviceImage<'_>], facts: &[HostFacts<'_>], lazy: &[bool]) -> Vec<String> {
    selected_with(found, facts, lazy, &SelectOptions::default())
}

fn selected_with(
    found: &[DeviceImage<'_>],
    facts: &[HostFacts<'_>],
    lazy: &[bool],
    options: &SelectOptions,
) -> Vec<String> {
    let origins: Vec<String> = (0..facts.len())
        .map(|input_object| format!("{input_object}.o"))
        .collect();
    let selection = select(found, &[], facts, lazy, &origins, options).unwrap();
    let job = |job: &DeviceJob<'_>| {
        let objects: Vec<String> = job
            .inputs
            .iter()
            .map(|input| input.input_object.to_string())
            .collect();
        format!("{}: {}", job.target.arch, objects.join(" "))
    };
    selection.jobs.iter().map(job).collect()
}

const AMD: &str = "amdgcn-amd-amdhsa";

#[test]
fn f15_generic_joins_the_specific_groups_in_any_order() {
    let facts = [facts(&[], &[]), facts(&[], &[]), facts(&[], &[])];
    let archs = ["gfx90a", "generic", "gfx908"];
    for order in [[0, 1, 2], [1, 0, 2], [2, 1, 0]] {
        let found: Vec<DeviceImage<'_>> = order
            .iter()
            .enumerate()
            .map(|(input_object, &at)| image(input_object, AMD, archs[at]))
            .collect();
        let position = |at: usize| order.iter().position(|&own| own == at).unwrap();
        let pair = |a: usize, b: usize| format!("{} {}", a.min(b), a.max(b));
        let expected = [
            format!("gfx90a: {}", pair(position(0), position(1))),
            format!("gfx908: {}", pair(position(2), position(1))),
        ];
        assert_eq!(selected(&found, &facts, &[false; 3]), expected);
    }
}

#[test]
fn generic_alone_has_an_image_of_its_own() {
    let found = [
        image(0, "x86_64-pc-linux-gnu", "generic"),
        image(1, "x86_64-pc-linux-gnu", ""),
    ];
    assert_eq!(
        selected(&found, &[facts(&[], &[]), facts(&[], &[])], &[false; 2]),
        [": 0 1"]
    );
}

#[test]
fn f14_unused_members_stay_out_and_used_ones_come_in() {
    let found = gfx90a([0, 1, 2, 3]);
    // main needs a; a needs b; nothing needs c.
    let facts = [
        facts(&["main"], &["a"]),
        facts(&["a"], &["b"]),
        facts(&["b"], &[]),
        facts(&["c"], &["nowhere"]),
    ];
    let lazy = [false, true, true, true];
    assert_eq!(selected(&found, &facts, &lazy), ["gfx90a: 0 1 2"]);
    let named = SelectOptions {
        should_extract: vec!["gfx90a".into()],
        ..SelectOptions::default()
    };
    assert_eq!(
        selected_with(&found, &facts, &lazy, &named),
        ["gfx90a: 0 1 2 3"]
    );
    let rooted = SelectOptions {
        roots: vec!["c".into()],
        ..SelectOptions::default()
    };
    assert_eq!(
        selected_with(&found, &facts, &lazy, &rooted),
        ["gfx90a: 0 1 2 3"]
    );
}

#[test]
fn a_definition_on_the_line_needs_no_archive_and_the_first_archive_wins() {
    let found = gfx90a([1, 2, 3]);
    let facts = [
        facts(&["main"], &["a", "b"]),
        facts(&["a"], &[]),
        facts(&["b"], &[]),
        facts(&["b"], &[]),
    ];
    // `a` is in an object; `b` is in two archives.
    assert_eq!(
        selected(&found, &facts, &[false, false, true, true]),
        ["gfx90a: 1 2"]
    );
}

#[test]
fn wrapped_symbols_are_followed() {
    let found = gfx90a([1, 2]);
    let facts = [
        facts(&["main"], &["f"]),
        facts(&["__wrap_f"], &["__real_f"]),
        facts(&["f"], &[]),
    ];
    let options = SelectOptions {
        wrapped: vec!["f".into()],
        ..SelectOptions::default()
    };
    assert_eq!(
        selected_with(&found, &facts, &[false, true, true], &options),
        ["gfx90a: 1 2"]
    );
}

#[test]
fn alternate_names_are_followed() {
    let found = gfx90a([1, 2, 3]);
    let alternate = |from: &str, to: &str| vec![(from.as_bytes().to_vec(), to.as_bytes().to_vec())];
    // `f` is referenced before `a` gives its alternate. Nothing references `k`. A cycle of
    // alternates ends.
    let main = HostFacts {
        alternate_names: alternate("k", "c"),
        ..facts(&["main"], &["f", "a"])
    };
    let a = HostFacts {
        alternate_names: alternate("f", "b"),
        ..facts(&["a"], &[])
    };
    let b = HostFacts {
        alternate_names: alternate("b", "f"),
        ..facts(&["b"], &[])
    };
    let all = [main, a, b, facts(&["c"], &[])];
    let lazy = [false, true, true, true];
    assert_eq!(selected(&found, &all, &lazy), ["gfx90a: 1 2"]);
    let options = SelectOptions {
        alternate_names: vec![("f".into(), "c".into())],
        ..SelectOptions::default()
    };
    assert_eq!(
        selected_with(&found, &all, &lazy, &options),
        ["gfx90a: 1 2 3"]
    );
}

#[test]
fn a_shared_library_pulls_its_undefined_symbols() {
    let found = gfx90a([1, 2]);
    let facts = [
        facts(&["main"], &[]),
        facts(&["callback"], &[]),
        facts(&["other"], &[]),
    ];
    let options = SelectOptions {
        shared: vec![SharedLibrary {
            name: "libs.so".into(),
            needs: vec![b"callback".to_vec()],
            defines: Vec::new(),
        }],
        ..SelectOptions::default()
    };
    assert_eq!(
        selected_with(&found, &facts, &[false, true, true], &options),
        ["gfx90a: 1"]
    );
}

#[test]
fn a_common_symbol_pulls_a_definition_with_a_value_and_no_other() {
    let found = gfx90a([1, 2, 3]);
    let common = |name: &'static str| {
        let symbol = Definition {
            name: Cow::Borrowed(name.as_bytes()),
            weak: true,
            common: true,
        };
        HostFacts {
            defined: vec![symbol],
            ..facts(&[], &[])
        }
    };
    let all = [
        common("x"),
        common("x"),
        facts(&["x"], &[]),
        facts(&["y"], &[]),
    ];
    assert_eq!(
        selected(&found, &all, &[false, true, true, true]),
        ["gfx90a: 2"]
    );
    // For linkers that keep common symbols, one defines the name for the members after it.
    let keeps = SelectOptions {
        keeps_common: true,
        ..SelectOptions::default()
    };
    assert!(selected_with(&found, &all, &[false, true, true, true], &keeps).is_empty());
    let user = || facts(&[], &["x"]);
    let after = [common("x"), user(), facts(&["x"], &[]), user()];
    let before = [user(), facts(&["x"], &[]), common("x"), user()];
    assert!(selected_with(&gfx90a([2]), &after, &[false, false, true, false], &keeps).is_empty());
    assert_eq!(
        selected_with(&gfx90a([1]), &before, &[false, true, false, false], &keeps),
        ["gfx90a: 1"]
    );
    let all = [
        facts(&["main"], &["x"]),
        common("x"),
        facts(&["y"], &[]),
        facts(&["z"], &[]),
    ];
    assert_eq!(
        selected(&found, &all, &[false, true, true, true]),
        ["gfx90a: 1"]
    );
}

#[test]
fn images_without_entries_get_the_generation_of_entries_without_images() {
    let found = gfx90a([1]);
    let unknown = || HostFacts {
        generation: None,
        ..facts(&[], &[])
    };
    let old = || HostFacts {
        generation: Some(Generation::Llvm15),
        ..facts(&[], &[])
    };
    let of = |facts: &[HostFacts<'_>], lazy: &[bool]| {
        let origins: Vec<String> = (0..facts.len())
            .map(|input_object| format!("{input_object}.o"))
            .collect();
        select(
            &found,
            &[],
            facts,
            lazy,
            &origins,
            &SelectOptions::default(),
        )
        .unwrap()
        .jobs
        .iter()
        .map(|job| job.generation)
        .collect::<Vec<_>>()
    };
    assert_eq!(of(&[old(), unknown()], &[false; 2]), [Generation::Llvm15]);
    assert_eq!(
        of(&[old(), unknown()], &[true, false]),
        [Generation::Llvm21]
    );
    assert_eq!(
        of(&[old(), facts(&[], &[])], &[false; 2]),
        [Generation::Llvm21]
    );
}

#[test]
fn each_generation_is_registered_by_itself() {
    let found = gfx90a([0, 1, 2]);
    let old = HostFacts {
        generation: Some(Generation::Llvm15),
        ..facts(&[], &[])
    };
    let unknown = HostFacts {
        generation: None,
        ..facts(&[], &[])
    };
    assert_eq!(
        selected(
            &found,
            &[old.clone(), facts(&[], &[]), unknown],
            &[false; 3]
        ),
        ["gfx90a: 0 2", "gfx90a: 1 2"]
    );
    let twenty = HostFacts {
        generation: Some(Generation::Llvm20),
        ..facts(&[], &[])
    };
    let mut two_kinds = gfx90a([0, 1]);
    two_kinds[1].kinds = OffloadKinds::default().with(OffloadKind::Hip);
    let jobs = selected(&two_kinds, &[old.clone(), twenty.clone()], &[false; 2]);
    assert_eq!(jobs, ["gfx90a: 0", "gfx90a: 1"], "tables of two kinds");
    let origins = ["0.o", "1.o"].map(str::to_owned);
    let error = select(
        &found[..2],
        &[],
        &[old, twenty],
        &[false; 2],
        &origins,
        &SelectOptions::default(),
    )
    .unwrap_err()
    .to_string();
    assert!(
        error.starts_with("1.o has entries of 56 bytes (LLVM 20) and 0.o entries of 32 bytes"),
        "{error}"
    );
}

#[test]
fn sycl_mixes_with_nothing() {
    let mut found = [image(0, "spirv64", ""), image(1, "spirv64", "")];
    found[1].kinds = OffloadKinds::default().with(OffloadKind::Sycl);
    let origins = ["0.o", "1.o"].map(str::to_owned);
    let error = select(
        &found,
        &[],
        &[facts(&[], &[]), facts(&[], &[])],
        &[false; 2],
        &origins,
        &SelectOptions::default(),
    )
    .unwrap_err();
    assert!(error.to_string().starts_with(
        "Linking images of SYCL offload kind with images of any other kind is not supported"
    ));
}
