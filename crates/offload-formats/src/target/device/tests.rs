//! Tests of the vendors' rules against their documents: each line of `tests/cases/check/rules.txt`
//! is a case. Also tests of product names.

use super::{Code, Fit, PRODUCTS, Wanted, architecture_of_product};
use crate::target::Target;
use crate::{gpu::Gpu, ptx};

const CASES: &str = include_str!("../../../../../tests/cases/check/rules.txt");

/// Returns the answer to a case: device, triple, architecture, format, further facts.
fn answer(device: &str, triple: &str, arch: &str, format: &str, more: &str) -> Fit {
    let mut wanted = Wanted::parse(device).unwrap();
    let target = Target::new(triple, if arch == "-" { "" } else { arch });
    let mut gpu = Gpu {
        triple: "amdgcn-amd-amdhsa",
        processor: String::new(),
        features: Default::default(),
        generic_version: None,
    };
    let (mut abi_version, mut head) = (None, ptx::Head::default());
    for fact in more.split_whitespace().filter(|fact| *fact != "-") {
        let (name, value) = fact.split_once('=').unwrap();
        match name {
            // The header numbers code object versions 4, 5 and 6 as 2, 3 and 4.
            "co" => abi_version = Some(value.parse::<u8>().unwrap() - 2),
            "header" => (gpu.triple, gpu.processor) = ("nvptx64-nvidia-cuda", value.to_owned()),
            "generic" => gpu.generic_version = value.parse().ok(),
            "ptx" => {
                head.version = value
                    .split_once('.')
                    .map(|(major, minor)| (major.parse().unwrap(), minor.parse().unwrap()))
            }
            "driver" => match &mut wanted.device {
                super::Device::Nvidia { driver, .. } => *driver = value.parse().ok(),
                other => panic!("{other} has no driver"),
            },
            other => panic!("{other}"),
        }
    }
    let code = Code {
        target: &target,
        format,
        gpu: Some(&gpu),
        abi_version,
        ptx: (format == "ptx").then_some(&head),
    };
    wanted.device.takes(&code)
}

#[test]
fn every_case_of_the_vendors_rules() {
    let mut source = "";
    let mut count = 0;
    for line in CASES
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        if let Some(named) = line.strip_prefix("source:") {
            source = named.trim();
            continue;
        }
        assert!(!source.is_empty(), "no source: {line}");
        let fields: Vec<&str> = line.split('|').map(str::trim).collect();
        let [device, triple, arch, format, more, expected] = fields[..] else {
            panic!("not six fields: {line}")
        };
        let found = answer(device, triple, arch, format, more);
        let verdict = match &found {
            Fit::Yes(..) => "yes",
            Fit::No(_) => "no",
            Fit::Unknown(_) => "unknown",
        };
        assert_eq!(verdict, expected, "{line}: {found:?} ({source})");
        count += 1;
    }
    assert!(count > 80, "{count} cases");
}

#[test]
fn the_image_that_the_runtime_loads_ranks_highest() {
    let rank = |device: &str, triple: &str, arch: &str, format: &str| match answer(
        device, triple, arch, format, "-",
    ) {
        Fit::Yes(rank, _) => rank,
        other => panic!("{arch}: {other:?}"),
    };
    const NVIDIA: &str = "nvptx64-nvidia-cuda";
    assert!(rank("sm_89", NVIDIA, "sm_89", "cubin") > rank("sm_89", NVIDIA, "sm_86", "cubin"));
    assert!(rank("sm_89", NVIDIA, "sm_80", "cubin") > rank("sm_89", NVIDIA, "sm_89", "ptx"));
    assert!(rank("sm_90", NVIDIA, "sm_90a", "cubin") > rank("sm_90", NVIDIA, "sm_90", "cubin"));
    const AMD: &str = "amdgcn-amd-amdhsa";
    assert!(
        rank("gfx90a:xnack+", AMD, "gfx90a:xnack+", "elf")
            > rank("gfx90a:xnack+", AMD, "gfx90a", "elf")
    );
    assert!(rank("gfx942", AMD, "gfx942", "elf") > rank("gfx942", AMD, "gfx9-4-generic", "elf"));
    assert!(
        rank("gfx942", AMD, "gfx9-4-generic", "elf")
            > rank("gfx942", "spirv64-amd-amdhsa", "amdgcnspirv", "spirv")
    );
}

#[test]
fn devices_have_the_syntax_of_selectors() {
    for (text, expected) in [
        ("gfx90a:sramecc+:xnack-", "gfx90a:sramecc+:xnack-"),
        ("hip:gfx1101", "gfx1101"),
        ("openmp:amdgcn-amd-amdhsa:gfx90a:xnack+", "gfx90a:xnack+"),
        ("cuda:sm_90a", "sm_90"),
        ("sm_120", "sm_120"),
        ("x86-64-v3", "x86-64-v3"),
        ("x86_64-pc-linux-gnu", "x86-64"),
        ("aarch64-linux-gnu", "aarch64"),
    ] {
        assert_eq!(
            Wanted::parse(text).unwrap().device.to_string(),
            expected,
            "{text}"
        );
    }
    for text in [
        "",
        "gfx",
        "gfx90a:xnack",
        "gfx1100:xnack+",
        "sm_",
        "sm_9x",
        "sm_42949672950",
        "x86-64-v5",
        "nonsense",
        "hip:",
        "amdgcn-amd-amdhsa",
    ] {
        assert!(
            Wanted::parse(text)
                .unwrap_err()
                .to_string()
                .contains("invalid device"),
            "{text}"
        );
    }
}

/// Tests with NVIDIA's own tools, run by `make test-releases`.
mod releases {
    use std::collections::BTreeSet;
    use std::path::{Path, PathBuf};

    use super::super::Fit;
    use super::super::nvidia::PTX_VERSIONS;
    use super::answer;
    use crate::reference::{self, missing, run};

    /// Returns the assembler of the NVIDIA toolkit that `make setup-cuda` installed.
    fn ptxas() -> Option<PathBuf> {
        let folder = std::env::var_os("OFFLD_CUDA").map_or_else(
            || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/cuda"),
            PathBuf::from,
        );
        let list = std::fs::read_to_string(folder.join("cuda.txt")).unwrap_or_default();
        let path = list.lines().find_map(|line| {
            line.strip_prefix("cuda ")?
                .split(' ')
                .find_map(|word| word.strip_prefix("path="))
        });
        let found = path
            .map(|path| Path::new(path).join("bin/ptxas"))
            .filter(|path| path.is_file());
        if found.is_none() {
            missing("ptxas (make setup-cuda)");
        }
        found
    }

    /// Returns the words that `ptxas WORD` prints.
    fn listed(ptxas: &Path, word: &str) -> BTreeSet<String> {
        let text = String::from_utf8(run(ptxas, Path::new("/"), [word]).unwrap()).unwrap();
        text.split_ascii_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn ptx_versions_match_the_list_of_ptxas() {
        let Some(ptxas) = ptxas() else { return };
        let first = PTX_VERSIONS[0].0;
        let version = |text: &String| {
            let (major, minor) = text.split_once('.').unwrap();
            (major.parse::<u32>().unwrap(), minor.parse::<u32>().unwrap())
        };
        let theirs: BTreeSet<(u32, u32)> = listed(&ptxas, "--list-version")
            .iter()
            .map(version)
            .filter(|one| *one >= first)
            .collect();
        // A later toolkit may drop old versions from the list.
        let ours: BTreeSet<(u32, u32)> = PTX_VERSIONS.iter().map(|(version, _)| *version).collect();
        assert!(
            theirs.len() > 20 && theirs.is_subset(&ours),
            "not in PTX_VERSIONS: {:?}",
            theirs.difference(&ours)
        );
        assert_eq!(theirs.last(), ours.last());
    }

    #[test]
    fn families_match_the_targets_of_ptxas() {
        let Some(ptxas) = ptxas() else { return };
        let dir = tempfile::tempdir().unwrap();
        let numbers = listed(&ptxas, "--list-arch");
        let (major, minor) = PTX_VERSIONS[PTX_VERSIONS.len() - 1].0;
        let is_accepted = |of: &str, device: &str| {
            let text = format!(".version {major}.{minor}\n.target sm_{of}f\n.address_size 64\n");
            std::fs::write(dir.path().join("k.ptx"), text).unwrap();
            let mut assemble = std::process::Command::new(&ptxas);
            assemble.current_dir(dir.path()).args([
                &format!("-arch=sm_{device}"),
                "k.ptx",
                "-o",
                "k.cubin",
            ]);
            reference::output(&mut assemble).unwrap().status.success()
        };
        let families: Vec<&String> = numbers
            .iter()
            .filter(|number| is_accepted(number, number))
            .collect();
        assert!(families.len() > 4, "{numbers:?}");
        for of in families {
            for device in &numbers {
                let fit = answer(
                    &format!("sm_{device}"),
                    "nvptx64-nvidia-cuda",
                    &format!("sm_{of}f"),
                    "ptx",
                    "-",
                );
                assert_eq!(
                    matches!(fit, Fit::Yes(..)),
                    is_accepted(of, device),
                    "sm_{of}f on sm_{device}: {fit:?}"
                );
            }
        }
    }
}

#[test]
fn products_and_compute_capabilities_have_architectures() {
    for (name, expected) in [
        ("8.6", Some("sm_86")),
        ("12.1", Some("sm_121")),
        ("rtx4090", Some("sm_89")),
        ("RTX-4070-Ti-Super", Some("sm_89")),
        ("NVIDIA GeForce RTX 3080 Ti", Some("sm_86")),
        ("mi300x", Some("gfx942")),
        ("AMD Instinct MI250X", Some("gfx90a")),
        ("Radeon VII", Some("gfx906")),
        ("l40s", Some("sm_89")),
        ("h100", Some("sm_90")),
        ("8.65", None),
        ("8.", None),
        (".6", None),
        ("rtx9999", None),
        ("mi300", None),
        ("nvidia", None),
        ("ti", None),
        ("", None),
    ] {
        assert_eq!(architecture_of_product(name).as_deref(), expected, "{name}");
    }
}

#[test]
fn every_architecture_is_a_device() {
    for (architecture, products) in PRODUCTS {
        assert!(
            Wanted::parse(architecture).is_ok() && !products.is_empty(),
            "{architecture}"
        );
        for product in *products {
            let found = PRODUCTS
                .iter()
                .filter(|(_, all)| all.contains(product))
                .count();
            assert_eq!(
                (found, architecture_of_product(product).as_deref()),
                (1, Some(*architecture)),
                "{product}"
            );
        }
    }
}
