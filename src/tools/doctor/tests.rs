//! Tests with simulated machines that lack some requirements.

use super::needs::{self, Facts, Thing, links};
use super::text::text;
use super::{
    Cache, Compiler, Devices, Kind, Link, Missing, OffldLlvm, Own, Part, Program, Report, SCHEMA,
    Step,
};
use offld_system::terminal::{Style, shown_width};

const ALL: [&str; 3] = [
    needs::LLD,
    needs::AMD_DEVICE_RUNTIME,
    needs::NVIDIA_DEVICE_RUNTIME,
];

/// Simulates a machine with a clang of LLVM version `llvm` and all requirements except `without`.
fn machine(llvm: u32, without: &[&str]) -> Facts {
    let names = needs::names().chain(ALL);
    let part = |name: &'static str| Part {
        name,
        path: (!without.contains(&name)).then(|| "/x".into()),
    };
    Facts {
        llvm: Some(llvm),
        has_linker: true,
        parts: names.map(part).collect(),
        ..Facts::default()
    }
}

fn link_of(kind: Kind, facts: &Facts) -> Link {
    links(facts)
        .into_iter()
        .find(|link| link.kind == kind)
        .unwrap()
}

/// Returns the kinds that can be linked, and the kinds that can also be compiled.
fn able(facts: &Facts) -> (Vec<Kind>, Vec<Kind>) {
    let kinds = |able: fn(&Link) -> bool| {
        links(facts)
            .iter()
            .filter(|link| able(link))
            .map(|link| link.kind)
            .collect()
    };
    (kinds(|link| link.link), kinds(|link| link.compile))
}

fn what(link: &Link) -> Vec<&str> {
    link.missing
        .iter()
        .map(|missing| missing.what.as_str())
        .collect()
}

#[test]
fn a_machine_with_everything_links_everything() {
    let facts = machine(22, &[]);
    assert_eq!(able(&facts), (Kind::ALL.to_vec(), Kind::ALL.to_vec()));
    assert!(links(&facts).iter().all(|link| link.missing.is_empty()));
}

#[test]
fn a_missing_requirement_affects_only_the_kinds_that_need_it() {
    use Kind::{Cuda, Hip, OpenMpAmd, OpenMpHost, OpenMpNvidia, Sycl};
    for (name, stopped) in [
        (
            "libomptarget.so",
            &[OpenMpHost, OpenMpAmd, OpenMpNvidia][..],
        ),
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
        let left: Vec<Kind> = Kind::ALL
            .into_iter()
            .filter(|kind| !stopped.contains(kind))
            .collect();
        assert_eq!(able(&facts).0, left, "{name}");
        let missing: Vec<Missing> = links(&facts)
            .into_iter()
            .flat_map(|link| link.missing)
            .collect();
        assert!(
            !missing.is_empty() && missing.iter().all(|own| !own.get.is_empty()),
            "{name}: {missing:?}"
        );
    }
    let header = able(&machine(22, &["omp.h"]));
    assert_eq!(
        header.1,
        [Hip, Cuda, Sycl],
        "a header is needed by the compiler alone"
    );
}

#[test]
fn requirements_depend_on_the_llvm_version() {
    let without = [
        needs::AMD_DEVICE_RUNTIME,
        needs::NVLINK_WRAPPER_NAME,
        needs::SYCL_LINKER_NAME,
    ];
    let early = machine(16, &without);
    let amd = link_of(Kind::OpenMpAmd, &early);
    assert!(
        amd.link && !amd.compile,
        "up to LLVM 21 the compiler adds the device runtime: {amd:?}"
    );
    assert_eq!(
        what(&amd),
        ["libomptarget-amdgpu*.bc, the OpenMP device runtime"]
    );
    assert!(
        link_of(Kind::Cuda, &early).link,
        "LLVM 16 runs nvlink itself"
    );
    assert_eq!(
        what(&link_of(Kind::Sycl, &early)),
        ["clang of LLVM 20 or later, with a linker for SYCL"]
    );
    let late = machine(22, &without);
    assert!(
        !link_of(Kind::OpenMpAmd, &late).link
            && !link_of(Kind::Cuda, &late).link
            && !link_of(Kind::Sycl, &late).link
    );
}

#[test]
fn without_a_clang_only_that_is_reported() {
    let facts = Facts {
        compiler_error: Some("none".into()),
        has_linker: true,
        ..Facts::default()
    };
    assert_eq!(able(&facts), (vec![], vec![]));
    assert_eq!(what(&link_of(Kind::OpenMpHost, &facts)), ["clang: none"]);
    let no_more = Facts {
        offld_llvm_error: Some("of another build".into()),
        has_linker: false,
        ..machine(22, &[])
    };
    let host = link_of(Kind::OpenMpHost, &no_more);
    assert_eq!(
        what(&host),
        [
            "offld-llvm: of another build",
            "a host linker (ld.lld or ld)"
        ]
    );
    assert!(!host.link && host.compile);
}

#[test]
fn errors_of_clang_are_reported_with_sources() {
    let text = "cannot find ROCm device library; provide its path";
    let facts = Facts {
        complaints: vec![(Kind::Hip, text.into()), (Kind::Cuda, "odd".into())],
        ..machine(22, &[])
    };
    let hip = link_of(Kind::Hip, &facts);
    assert!(hip.link && !hip.compile);
    let expected = Missing {
        step: Step::Compile,
        what: format!("clang reports: {text}"),
        get: needs::how_to_get(Thing::RocmBitcode, Some(22)),
    };
    assert_eq!(hip.missing, [expected]);
    assert_eq!(
        link_of(Kind::Cuda, &facts).missing[0].get,
        [],
        "an unknown error has no sources"
    );
    // The missing runtime is reported once, although clang complains about it, too.
    let early =
        "no library 'libomptarget-amdgpu-gfx90a.bc' found in the default clang lib directory";
    let facts = Facts {
        complaints: vec![(Kind::OpenMpAmd, early.into())],
        ..machine(15, &[needs::AMD_DEVICE_RUNTIME])
    };
    assert_eq!(link_of(Kind::OpenMpAmd, &facts).missing.len(), 1);
}

#[test]
fn packages_have_the_number_of_the_clang() {
    let debian = |thing, llvm| needs::how_to_get(thing, llvm)[0].what.clone();
    assert_eq!(debian(Thing::OmpTarget, Some(22)), "liboffload-22-dev");
    assert_eq!(debian(Thing::OmpTarget, Some(19)), "libomp-19-dev");
    assert_eq!(
        debian(Thing::Omp, None),
        format!("libomp-{}-dev", needs::RECOMMENDED)
    );
    assert_eq!(debian(Thing::Clang, Some(16)), "clang-16 lld-16");
}

/// Simulates a report for a machine with clang and without a GPU.
fn report() -> Report {
    let missing = [
        "ptxas",
        "nvlink",
        "fatbinary",
        "libamdhip64.so",
        "libcudart.so",
        needs::AMD_DEVICE_RUNTIME,
        "libsycl.so",
    ];
    let text = "cannot find ROCm device library; provide its path via '--rocm-path' or '--rocm-device-lib-path'";
    let facts = Facts {
        complaints: vec![(Kind::Hip, text.into())],
        ..machine(22, &missing)
    };
    let program = |path: &str, says: &str, chosen| Program {
        path: path.into(),
        says: Some(says.to_owned()),
        chosen,
    };
    let part = |name, path: Option<&str>| Part {
        name,
        path: path.map(Into::into),
    };
    Report {
        schema: SCHEMA,
        version: SCHEMA,
        generator: "offld X".to_owned(),
        host_openmp: true,
        offld: Own {
            path: Some("/usr/bin/offld".into()),
            names: Some("/usr/libexec/offld".into()),
        },
        offld_llvm: OffldLlvm {
            path: Some("/usr/libexec/offld/offld-llvm".into()),
            host_triple: None,
            error: None,
        },
        compilers: vec![Compiler {
            path: "/usr/bin/clang-22".into(),
            says: Some("Debian clang version 22.1.8 (1~deb12u1)".to_owned()),
            llvm: Some(22),
            chosen: true,
        }],
        compiler_error: None,
        linkers: vec![
            program("/usr/bin/ld", "GNU ld (GNU Binutils for Debian) 2.40", true),
            program(
                "/usr/lib/llvm-22/bin/ld.lld",
                "Debian LLD 22.1.8 (compatible with GNU linkers)",
                false,
            ),
        ],
        tools: vec![
            part("ld.lld", Some("/usr/lib/llvm-22/bin/ld.lld")),
            part("ptxas", None),
        ],
        files: vec![
            part(
                "libgcc.a",
                Some("/usr/lib/gcc/x86_64-linux-gnu/12/libgcc.a"),
            ),
            part("libsycl.so", None),
        ],
        devices: Devices {
            cpu: Some("x86-64-v4".to_owned()),
            ..Devices::default()
        },
        cache: Cache {
            folder: Some("/home/user/.cache/offld".into()),
            ..Cache::default()
        },
        remote: None,
        links: links(&facts),
    }
}

/// The output for terminals of three widths, compared with files (`BLESS=1` writes them). The
/// verdict comes first, no line is too long, and no word is broken.
#[test]
fn pictures_of_terminals() {
    for width in [60, 80, 200] {
        let style = Style {
            width: Some(width),
            ..Style::default()
        };
        for (all, name) in [(false, ""), (true, "-all")] {
            let shown = text(&report(), all, style);
            let path = format!(
                "{}/tests/pictures/doctor{name}-{width}.txt",
                env!("CARGO_MANIFEST_DIR")
            );
            if std::env::var_os("BLESS").is_some_and(|value| value == "1") {
                std::fs::write(&path, &shown).unwrap();
            }
            assert_eq!(shown, std::fs::read_to_string(&path).unwrap(), "{path}");
            assert!(shown.starts_with("verdict: can be linked"), "{shown}");
            for line in shown.lines() {
                assert!(
                    shown_width(line) <= width || !line.trim().contains(' '),
                    "{width}: {line}"
                );
            }
            let words = |text: &str| text.split_whitespace().collect::<String>();
            assert_eq!(
                words(&shown),
                words(&text(&report(), all, Style::default())),
                "nothing is cut"
            );
        }
    }
    let folded = text(&report(), false, Style::default());
    assert!(
        folded.contains("HIP; CUDA: no such GPU in this machine; --all shows")
            && !folded.contains("ROCm device library"),
        "{folded}"
    );
    assert!(text(&report(), true, Style::default()).contains("ROCm device library"));
    let with_gpu = Report {
        devices: Devices {
            amd: vec!["gfx90a".to_owned()],
            ..Devices::default()
        },
        ..report()
    };
    assert!(
        text(&with_gpu, false, Style::default()).contains("ROCm device library"),
        "missing parts for this GPU are shown"
    );
}
