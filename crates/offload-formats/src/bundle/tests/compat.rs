//! Compatibility of code objects and targets, compared with tables from LLVM's bundler and with the
//! bundler itself.

use std::collections::BTreeSet;
use std::path::Path;

use object::read::archive::ArchiveFile;

use super::*;

fn compat(object: &str, target: &str) -> Verdict {
    compatibility(&Id::parse(object), &Id::parse(target), false)
}

/// Object, requested triple, and whether they are compatible.
#[rustfmt::skip]
const TRIPLES: [(&str, &str, bool); 35] = [
    ("x86_64-foo-linux-gnu", "x86_64-bar-linux-gnu", true),
    ("x86_64-unknown-linux-gnu", "x86_64-foo-linux-gnu", true),
    ("x86_64-pc-linux-gnu", "x86_64-unknown-linux-gnu", false),
    ("x86_64-unknown-linux-gnu", "x86_64-unknown-linux-musl", false),
    ("x86_64-unknown-linux-gnu", "x86_64-unknown-linux5.4-gnu", true),
    ("x86_64-unknown-linux-gnu", "amd64-unknown-linux-gnu", true),
    ("x86_64-unknown-linux-gnu", "x86_64h-unknown-linux-gnu", true),
    ("x86_64-unknown-linux-gnu", "i386-unknown-linux-gnu", false),
    ("i386-unknown-linux-gnu", "i686-unknown-linux-gnu", true),
    ("armv7-unknown-linux-gnueabihf", "thumbv7-unknown-linux-gnueabihf", true),
    ("armv7-unknown-linux-gnueabihf", "armv8-unknown-linux-gnueabihf", false),
    ("armv7-unknown-linux-gnueabihf", "armv7-unknown-linux-gnueabi", false),
    ("armv7-unknown-linux-gnu", "armv7a-unknown-linux-gnu", true),
    ("x86_64-apple-macosx10.15-", "x86_64-apple-macosx11.0-", true),
    ("x86_64-apple-macosx-", "x86_64-apple-darwin-", false),
    ("x86_64-w64-windows-gnu", "x86_64-pc-windows-gnu", true),
    ("x86_64-w64-windows-msvc", "x86_64-pc-windows-msvc", false),
    ("x86_64-w64-mingw32-", "x86_64-pc-windows-gnu", true),
    ("amdgcn-amd-amdhsa-", "amdgcn-amd-amdhsa-unknown", true),
    ("amdgcn-amd-amdhsa-", "amdgcn-unknown-amdhsa-", false),
    ("amdgcn-amd-amdhsa-", "amdgcn-amd-amdpal-", false),
    ("amdgcn-amd-amdhsa-", "r600-amd-amdhsa-", false),
    ("nvptx64-nvidia-cuda-", "nvptx64-nvidia-cuda-unknown", true),
    ("nvptx64-nvidia-cuda-", "nvptx64-nvidia-cuda-gnu", false),
    ("nvptx64-nvidia-cuda-", "nvptx-nvidia-cuda-", false),
    ("aarch64-unknown-linux-android21", "aarch64-unknown-linux-android30", true),
    ("x86_64-unknown-linux-gnuelf", "x86_64-unknown-linux-gnu", true),
    ("x86_64-unknown-linux-gnucoff", "x86_64-unknown-linux-gnu", false),
    ("x86_64-unknown-foo-gnu", "x86_64-unknown-bar-gnu", true),
    ("x86_64-unknown-linux-foo", "x86_64-unknown-linux-bar", true),
    ("x86_64-unknown-foo-gnu", "x86_64-unknown-linux-gnu", false),
    ("aarch64-unknown-linux-gnu", "arm64-unknown-linux-gnu", true),
    ("arm64e-apple-ios14.0-", "arm64-apple-ios14.0-", false),
    ("aarch64-apple-ios14.0-simulator", "aarch64-apple-ios15.0-", true),
    ("spirv64v1.2-unknown-unknown-unknown", "spirv64v1.3-unknown-unknown-unknown", false),
];

#[test]
fn ob_37_triples_fit_as_names_that_are_known() {
    for (object, requested, fits) in TRIPLES {
        assert_eq!(
            compatible_triples(object, requested),
            fits,
            "{object} for {requested}"
        );
        assert_eq!(
            compat(
                &format!("openmp-{object}-"),
                &format!("openmp-{requested}-")
            )
            .serves(),
            fits,
            "{object} for {requested}"
        );
    }
}

/// The forms of gfx908, in the order of the truth table: each feature unspecified, on or off.
fn forms() -> Vec<String> {
    let values = |name: &str| [String::new(), format!(":{name}+"), format!(":{name}-")];
    let (sramecc, xnack) = (values("sramecc"), values("xnack"));
    sramecc
        .iter()
        .flat_map(|first| {
            xnack
                .iter()
                .map(move |second| format!("gfx908{first}{second}"))
        })
        .collect()
}

fn hip(target_id: &str) -> String {
    format!("hip-amdgcn-amd-amdhsa--{target_id}")
}

#[test]
fn ob_39_ob_40_the_truth_table_of_two_features() {
    // By row: the columns of the targets that can use the object.
    let served: [&[usize]; 9] = [
        &[0, 1, 2, 3, 4, 5, 6, 7, 8],
        &[1, 4, 7],
        &[2, 5, 8],
        &[3, 4, 5],
        &[4],
        &[5],
        &[6, 7, 8],
        &[7],
        &[8],
    ];
    let forms = forms();
    for (object, row) in forms.iter().zip(served) {
        for (column, target) in forms.iter().enumerate() {
            assert_eq!(
                compat(&hip(object), &hip(target)).serves(),
                row.contains(&column),
                "{object} for {target}"
            );
        }
    }
}

#[test]
fn ob_26_ob_30_kinds_of_hip_are_one_and_openmp_is_by_request() {
    let served = |object: &str, target: &str, mixed: bool| {
        let id = |kind: &str| Id::parse(&format!("{kind}-amdgcn-amd-amdhsa--gfx906"));
        compatibility(&id(object), &id(target), mixed).serves()
    };
    for (object, target) in [("hip", "hipv4"), ("hipv4", "hip"), ("openmp", "openmp")] {
        assert!(served(object, target, false), "{object} for {target}");
    }
    for (object, target) in [
        ("openmp", "hip"),
        ("hipv4", "openmp"),
        ("hipfoo", "openmp"),
        ("HIP", "openmp"),
    ] {
        assert!(
            !served(object, target, false) && served(object, target, true),
            "{object} for {target}"
        );
    }
    assert!(!served("host", "openmp", true) && !served("hipfoo", "hip", true));
}

#[test]
fn ob_55_each_verdict_has_llvms_line() {
    let line = |object: &str, target: &str| {
        let (object, target) = (Id::parse(object), Id::parse(target));
        compatibility(&object, &target, false).line(&object, &target)
    };
    let check_line = |what: &str, object: &str, target: &str| {
        assert_eq!(
            line(&hip(object), &hip(target)),
            format!(
                "{what} \t[CodeObject: {}]\t:\t[Target: {}]",
                hip(object),
                hip(target)
            )
        );
    };
    check_line("Compatible: Exact match:", "gfx906", "gfx906");
    check_line("Incompatible: Processor mismatch", "gfx906", "gfx908");
    check_line(
        "Incompatible: CodeObject has more features than target",
        "gfx906:xnack+",
        "gfx906",
    );
    check_line(
        "Incompatible: Value of CodeObject's non-ANY feature is not matching with Target feature's ANY value",
        "gfx906:xnack+",
        "gfx906:sramecc+",
    );
    check_line(
        "Incompatible: Value of CodeObject's non-ANY feature is not matching with Target feature's non-ANY value",
        "gfx906:xnack+",
        "gfx906:xnack-",
    );
    check_line(
        "Compatible: Target IDs are compatible",
        "gfx906",
        "gfx906:xnack-",
    );
    assert_eq!(
        line("host-x86_64-unknown-linux-gnu-", &hip("gfx906")),
        format!(
            "Incompatible: Kind/Triple mismatch \t[CodeObject: host-x86_64-unknown-linux-gnu-]\t:\t[Target: {}]",
            hip("gfx906")
        )
    );
}

#[test]
fn b2_processors_that_nobody_knows_are_told_apart() {
    assert_eq!(compat(&hip("gfx1410"), &hip("gfx9999")), Verdict::Processor);
    assert_eq!(compat(&hip("gfx1410"), &hip("gfx1410")), Verdict::Exact);
    assert_eq!(
        compat(
            "hip-amdgcn-amd-amdhsa--gfx1410",
            "hipv4-amdgcn-amd-amdhsa--gfx1410"
        ),
        Verdict::Compatible
    );
    assert_eq!(
        compat(&hip("gfx1410"), &hip("gfx1410:xnack+")),
        Verdict::Processor
    );
    assert_eq!(
        compat(
            "openmp-nvptx64-nvidia-cuda--sm_63",
            "openmp-nvptx64-nvidia-cuda--sm_64"
        ),
        Verdict::Processor
    );
}

#[test]
fn b1_ob_38_ob_41_other_names_and_orders_are_the_same() {
    assert_eq!(compat(&hip("gfx803"), &hip("fiji")), Verdict::Exact);
    assert_eq!(
        compat(
            &hip("gfx906:xnack+:sramecc-"),
            &hip("gfx906:sramecc-:xnack+")
        ),
        Verdict::Exact
    );
    assert_eq!(
        compat("hip-amdgcn-amd-amdhsa-gfx906", &hip("gfx906")),
        Verdict::Exact
    );
}

#[test]
fn ob_33_ob_42_features_are_those_of_the_processor() {
    assert_eq!(
        compat(&hip("gfx803:xnack+"), &hip("gfx803:xnack+")),
        Verdict::Exact
    );
    for (object, target) in [
        ("gfx803", "gfx803:xnack+"),
        ("gfx900", "gfx900:sramecc+"),
        ("gfx906", "gfx906:foo+"),
        ("gfx906", "gfx906:xnack"),
        ("gfx906", "gfx906:xnack+:xnack+"),
    ] {
        assert_eq!(
            compat(&hip(object), &hip(target)),
            Verdict::Processor,
            "{object} for {target}"
        );
    }
    assert!(
        compat(&hip("gfx900"), &hip("gfx900:xnack+")).serves()
            && compat(&hip("gfx942"), &hip("gfx942:sramecc-")).serves()
    );
    assert!(
        !compat(&hip("gfx9-generic"), &hip("gfx906")).serves(),
        "a generic processor is a name like any other"
    );
    assert!(
        !compat(
            "openmp-nvptx64-nvidia-cuda--sm_70",
            "openmp-nvptx64-nvidia-cuda--sm_70:x+"
        )
        .serves()
    );
}

#[test]
fn b14_the_exact_one_is_best_then_the_most_specific() {
    let best = |objects: &[&str], target: &str| {
        let ids: Vec<Id> = objects.iter().map(|id| Id::parse(id)).collect();
        Objects::new(&ids)
            .best(&Id::parse(target), false)
            .map(|index| objects[index].to_owned())
    };
    let both = [
        "hipv4-amdgcn-amd-amdhsa--gfx906",
        "hip-amdgcn-amd-amdhsa--gfx906",
    ];
    for wanted in both {
        assert_eq!(best(&both, wanted).as_deref(), Some(wanted));
    }
    let (any, on) = (hip("gfx906"), hip("gfx906:xnack+"));
    assert_eq!(best(&[&any, &on], &on), Some(on.clone()));
    assert_eq!(
        best(&[&any, &on], &hip("gfx906:sramecc-:xnack+")),
        Some(on.clone())
    );
    assert_eq!(best(&[&any, &on], &hip("gfx906:xnack-")), Some(any));
    assert_eq!(best(&[&on], &hip("gfx906")), None);
}

/// The code objects that LLVM's bundler selects for `target` from an archive of one bundle with
/// these IDs.
fn chosen(
    bundler: &Path,
    folder: &Path,
    target: &str,
    more: &[&str],
) -> Result<BTreeSet<String>, Box<dyn std::error::Error>> {
    let mut args = vec![format!("-targets={target}")];
    args.extend(
        [
            "-type=a",
            "-unbundle",
            "-input=all.a",
            "-output=one.a",
            "-allow-missing-bundles",
        ]
        .map(str::to_owned),
    );
    args.extend(more.iter().map(|arg| (*arg).to_owned()));
    run(bundler, folder, &args)?;
    let made = std::fs::read(folder.join("one.a"))?;
    let mut ids = BTreeSet::new();
    for member in ArchiveFile::parse(&*made)?.members() {
        let name = String::from_utf8(member?.name().to_vec())?;
        ids.extend(
            name.strip_prefix("m-")
                .and_then(|rest| Some(rest.rsplit_once('m')?.0.to_owned())),
        );
    }
    Ok(ids)
}

/// An archive of one bundle with these IDs.
fn archive(ar: &Path, folder: &Path, ids: &BTreeSet<String>) -> Outcome {
    let objects: Vec<(&str, &[u8])> = ids
        .iter()
        .map(|id| (id.as_str(), &b"some bytes"[..]))
        .collect();
    std::fs::write(folder.join("m.o"), bundled(&objects, 1)?)?;
    run(ar, folder, ["rcs", "all.a", "m.o"])?;
    Ok(())
}

fn same_choices(ids: &BTreeSet<String>, more: &[&str]) -> Outcome {
    let Some([bundler, ar]) = tools(["clang-offload-bundler", "llvm-ar"]) else {
        return Ok(());
    };
    let folder = tempfile::tempdir()?;
    archive(&ar, folder.path(), ids)?;
    let mut wrong = Vec::new();
    for target in ids {
        let theirs = chosen(&bundler, folder.path(), target, more)?;
        let wanted = Id::parse(target);
        let serves =
            |id: &&String| compatibility(&Id::parse(id), &wanted, !more.is_empty()).serves();
        let ours: BTreeSet<String> = ids
            .iter()
            .filter(serves)
            .map(|id| id.replace(':', "_"))
            .collect();
        wrong.extend(
            ours.symmetric_difference(&theirs)
                .map(|id| format!("{target}: {id}, ours: {}", ours.contains(id))),
        );
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

#[test]
fn ob_37_triples_fit_as_llvms_bundler_finds() -> Outcome {
    let mut ids: BTreeSet<String> = TRIPLES
        .iter()
        .flat_map(|(one, other, _)| [*one, *other])
        .map(|triple| bundle_id("openmp", triple, ""))
        .collect();
    let more = "mips-unknown-linux-gnu mipsisa32r6-unknown-linux-gnu mipsr6-unknown-linux-gnu powerpc-unknown-aix-unknown ppc32-unknown-aix-unknown \
        powerpcspe-unknown-linux-gnu ppc-unknown-linux-gnu armv7-unknown-linux-gnueabi xscale-unknown-linux-gnueabi arm-unknown-linux-gnueabi \
        armv4-unknown-linux-gnueabi armv7m-unknown-linux-gnueabi armv7r-unknown-linux-gnueabi thumbv7-unknown-linux-gnueabi armeb-unknown-linux-gnueabi \
        thumbebv7-unknown-linux-gnueabi bpf-unknown-unknown-unknown bpfel-unknown-unknown-unknown bpfeb-unknown-unknown-unknown \
        dxilv1.1-unknown-shadermodel6.1-pixel armv5te-unknown-linux-gnueabi spirv-unknown-vulkan-unknown spirv1.5-unknown-vulkan-unknown \
        s390x-unknown-zos-unknown systemz-unknown-zos-unknown sparc64-unknown-linux-gnu sparcv9-unknown-linux-gnu wasm32-unknown-wasi-unknown \
        wasm32-unknown-wasip1-unknown wasm32-unknown-wasip2-unknown x86_64-pc-windows-elf x86_64-pc-windows-msvc x86_64-pc-windows-cygnus \
        x86_64-pc-windows-gnu x86_64-suse-linux-gnu x86_64-unknown-linux-gnux32 x86_64-unknown-linux-muslx32 arm64-apple-visionos1.0-unknown \
        arm64-apple-xros1.0-unknown arm64_32-apple-watchos-unknown aarch64_32-apple-watchos-unknown i986-unknown-linux-gnu kalimba-csr-unknown-unknown \
        kalimba3-csr-unknown-unknown arm64ec-pc-windows-msvc aarch64-pc-windows-msvc mips64el-unknown-linux-gnuabi64 mipsn32el-unknown-linux-gnuabin32";
    ids.extend(
        more.split_whitespace()
            .map(|triple| bundle_id("openmp", triple, "")),
    );
    same_choices(&ids, &[])
}

#[test]
fn ob_40_code_objects_serve_the_targets_that_llvms_bundler_finds() -> Outcome {
    let mut ids: BTreeSet<String> = forms().iter().map(|form| hip(form)).collect();
    for id in [
        "gfx906",
        "gfx906:xnack-",
        "gfx900:xnack+",
        "gfx900",
        "gfx803",
        "gfx803:xnack+",
        "gfx9-generic",
        "gfx9-generic:xnack+",
        "gfx1100",
    ] {
        ids.extend(
            ["hip", "hipv4", "openmp"].map(|kind| format!("{kind}-amdgcn-amd-amdhsa--{id}")),
        );
    }
    ids.extend(["sm_70", "sm_80"].map(|id| format!("openmp-nvptx64-nvidia-cuda-unknown-{id}")));
    ids.insert("hip-spirv64-amd-amdhsa--amdgcnspirv".to_owned());
    // In LLVM, a feature that the processor lacks is only compatible with itself. In offld, it is
    // compatible with the other HIP kinds too.
    let clean: BTreeSet<String> = ids
        .into_iter()
        .filter(|id| !id.contains("gfx803:"))
        .collect();
    same_choices(&clean, &[])?;
    same_choices(&clean, &["-hip-openmp-compatible"])
}
