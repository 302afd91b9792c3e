//! Machines on which something is missing.

use super::advice::{self, Thing};
use super::needs::{self, Facts, links};
use super::report::{Kind, Link, Missing, Part, Step};

const ALL: [&str; 3] = [needs::LLD, needs::AMD_DEVICE_RUNTIME, needs::NVIDIA_DEVICE_RUNTIME];

/// A machine with a clang of release `llvm` that has everything but `without`.
fn machine(llvm: u32, without: &[&str]) -> Facts {
    let names = needs::names().chain(ALL);
    let part = |name: &'static str| Part { name, path: (!without.contains(&name)).then(|| "/x".into()) };
    Facts { llvm: Some(llvm), has_linker: true, parts: names.map(part).collect(), ..Facts::default() }
}

fn of(kind: Kind, facts: &Facts) -> Link {
    links(facts).into_iter().find(|link| link.kind == kind).unwrap()
}

/// The kinds that can be linked, and those that can be compiled as well.
fn able(facts: &Facts) -> (Vec<Kind>, Vec<Kind>) {
    let of = |able: fn(&Link) -> bool| links(facts).iter().filter(|link| able(link)).map(|link| link.kind).collect();
    (of(|link| link.link), of(|link| link.compile))
}

fn what(link: &Link) -> Vec<&str> {
    link.missing.iter().map(|missing| missing.what.as_str()).collect()
}

#[test]
fn a_machine_with_everything_links_everything() {
    let facts = machine(22, &[]);
    assert_eq!(able(&facts), (Kind::ALL.to_vec(), Kind::ALL.to_vec()));
    assert!(links(&facts).iter().all(|link| link.missing.is_empty()));
}

#[test]
fn what_is_missing_stops_the_kinds_that_need_it_and_no_other() {
    use Kind::{Cuda, Hip, OpenMpAmd, OpenMpHost, OpenMpNvidia, Sycl};
    for (name, stopped) in [
        ("libomptarget.so", &[OpenMpHost, OpenMpAmd, OpenMpNvidia][..]),
        ("libomp.so", &[OpenMpHost, OpenMpAmd, OpenMpNvidia]),
        ("crt1.o", &Kind::ALL),
        (needs::LLD, &[OpenMpAmd, Hip]),
        (needs::AMD_DEVICE_RUNTIME, &[OpenMpAmd]),
        (needs::NVIDIA_DEVICE_RUNTIME, &[OpenMpNvidia]),
        ("ptxas", &[OpenMpNvidia, Cuda]),
        ("fatbinary", &[Cuda]),
        ("libcudart.so", &[Cuda]),
        (needs::NVLINK_WRAPPER_NAME, &[OpenMpNvidia, Cuda]),
        ("libamdhip64.so", &[Hip]),
        ("libsycl.so", &[Sycl]),
        ("omp.h", &[]),
        (needs::SYCL_HEADER, &[]),
    ] {
        let facts = machine(22, &[name]);
        let left: Vec<Kind> = Kind::ALL.into_iter().filter(|kind| !stopped.contains(kind)).collect();
        assert_eq!(able(&facts).0, left, "{name}");
        let missing: Vec<Missing> = links(&facts).into_iter().flat_map(|link| link.missing).collect();
        assert!(!missing.is_empty() && missing.iter().all(|own| !own.get.is_empty()), "{name}: {missing:?}");
    }
    let header = able(&machine(22, &["omp.h"]));
    assert_eq!(header.1, [Hip, Cuda, Sycl], "a header is needed by the compiler alone");
}

#[test]
fn releases_need_what_is_theirs() {
    let without = [needs::AMD_DEVICE_RUNTIME, needs::NVLINK_WRAPPER_NAME, needs::SYCL_LINKER_NAME];
    let early = machine(16, &without);
    let amd = of(Kind::OpenMpAmd, &early);
    assert!(amd.link && !amd.compile, "up to LLVM 21 the compiler adds the device runtime: {amd:?}");
    assert_eq!(what(&amd), ["libomptarget-amdgpu*.bc, OpenMP's runtime on the device"]);
    assert!(of(Kind::Cuda, &early).link, "LLVM 16 runs nvlink itself");
    assert_eq!(what(&of(Kind::Sycl, &early)), ["a clang of LLVM 20 or later: this one has no linker for SYCL"]);
    let late = machine(22, &without);
    assert!(!of(Kind::OpenMpAmd, &late).link && !of(Kind::Cuda, &late).link && !of(Kind::Sycl, &late).link);
}

#[test]
fn without_a_clang_that_alone_is_said() {
    let facts = Facts { compiler_error: Some("none".into()), has_linker: true, ..Facts::default() };
    assert_eq!(able(&facts), (vec![], vec![]));
    assert_eq!(what(&of(Kind::OpenMpHost, &facts)), ["clang: none"]);
    let no_more = Facts { offld_llvm_error: Some("of another build".into()), has_linker: false, ..machine(22, &[]) };
    let host = of(Kind::OpenMpHost, &no_more);
    assert_eq!(what(&host), ["offld-llvm: of another build", "a host linker (ld.lld or ld)"]);
    assert!(!host.link && host.compile);
}

#[test]
fn what_clang_says_is_told_with_a_way_out() {
    let text = "cannot find ROCm device library; provide its path";
    let facts = Facts { complaints: vec![(Kind::Hip, text.into()), (Kind::Cuda, "odd".into())], ..machine(22, &[]) };
    let hip = of(Kind::Hip, &facts);
    assert!(hip.link && !hip.compile);
    let expected = Missing {
        step: Step::Compile,
        what: format!("clang says: {text}"),
        get: advice::how_to_get(Thing::RocmBitcode, Some(22)),
    };
    assert_eq!(hip.missing, [expected]);
    assert_eq!(of(Kind::Cuda, &facts).missing[0].get, [], "of what is not known nothing is promised");
    // What offld has seen itself is not said twice.
    let early = "no library 'libomptarget-amdgpu-gfx90a.bc' found in the default clang lib directory";
    let facts = Facts { complaints: vec![(Kind::OpenMpAmd, early.into())], ..machine(15, &[needs::AMD_DEVICE_RUNTIME]) };
    assert_eq!(of(Kind::OpenMpAmd, &facts).missing.len(), 1);
}

#[test]
fn packages_have_the_number_of_the_clang() {
    let debian = |thing, llvm| advice::how_to_get(thing, llvm)[0].what.clone();
    assert_eq!(debian(Thing::OmpTarget, Some(22)), "liboffload-22-dev");
    assert_eq!(debian(Thing::OmpTarget, Some(19)), "libomp-19-dev");
    assert_eq!(debian(Thing::Omp, None), format!("libomp-{}-dev", advice::RECOMMENDED));
    assert_eq!(debian(Thing::Clang, Some(16)), "clang-16 lld-16");
}
