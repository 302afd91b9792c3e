//! The vendors' rules, held against their documents: `tests/cases/check/rules.txt` has a case in each line.

use super::{Code, Fit, Wanted};
use crate::formats::{gpu::Gpu, ptx};
use crate::target::Target;

const CASES: &str = include_str!("../../../tests/cases/check/rules.txt");

/// The answer to a case: device, triple, architecture, format, further facts.
fn answer(device: &str, triple: &str, arch: &str, format: &str, more: &str) -> Fit {
    let mut wanted = Wanted::parse(device).unwrap();
    let target = Target::new(triple, if arch == "-" { "" } else { arch });
    let mut gpu =
        Gpu { triple: "amdgcn-amd-amdhsa", processor: String::new(), features: Default::default(), generic_version: None };
    let (mut abi_version, mut head) = (None, ptx::Head::default());
    for fact in more.split_whitespace().filter(|fact| *fact != "-") {
        let (name, value) = fact.split_once('=').unwrap();
        match name {
            // Code object versions 4, 5 and 6 have the numbers 2, 3 and 4 in the header.
            "co" => abi_version = Some(value.parse::<u8>().unwrap() - 2),
            "generic" => gpu.generic_version = value.parse().ok(),
            "ptx" => head.version = value.split_once('.').map(|(major, minor)| (major.parse().unwrap(), minor.parse().unwrap())),
            "driver" => match &mut wanted.device {
                super::Device::Nvidia { driver, .. } => *driver = value.parse().ok(),
                other => panic!("{other} has no driver"),
            },
            other => panic!("{other}"),
        }
    }
    let code = Code { target: &target, format, gpu: Some(&gpu), abi_version, ptx: (format == "ptx").then_some(&head) };
    wanted.device.takes(&code)
}

#[test]
fn every_case_of_the_vendors_rules() {
    let mut source = "";
    let mut count = 0;
    for line in CASES.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(named) = line.strip_prefix("source:") {
            source = named.trim();
            continue;
        }
        assert!(!source.is_empty(), "no source: {line}");
        let fields: Vec<&str> = line.split('|').map(str::trim).collect();
        let [device, triple, arch, format, more, expected] = fields[..] else { panic!("not six fields: {line}") };
        let found = answer(device, triple, arch, format, more);
        let said = match &found {
            Fit::Yes(..) => "yes",
            Fit::No(_) => "no",
            Fit::Unknown(_) => "unknown",
        };
        assert_eq!(said, expected, "{line}: {found:?} ({source})");
        count += 1;
    }
    assert!(count > 80, "{count} cases");
}

#[test]
fn of_several_images_the_one_that_the_runtime_takes_ranks_highest() {
    let rank = |device: &str, triple: &str, arch: &str, format: &str| match answer(device, triple, arch, format, "-") {
        Fit::Yes(rank, _) => rank,
        other => panic!("{arch}: {other:?}"),
    };
    const NVIDIA: &str = "nvptx64-nvidia-cuda";
    assert!(rank("sm_89", NVIDIA, "sm_89", "cubin") > rank("sm_89", NVIDIA, "sm_86", "cubin"));
    assert!(rank("sm_89", NVIDIA, "sm_80", "cubin") > rank("sm_89", NVIDIA, "sm_89", "ptx"));
    assert!(rank("sm_90", NVIDIA, "sm_90a", "cubin") > rank("sm_90", NVIDIA, "sm_90", "cubin"));
    const AMD: &str = "amdgcn-amd-amdhsa";
    assert!(rank("gfx90a:xnack+", AMD, "gfx90a:xnack+", "elf") > rank("gfx90a:xnack+", AMD, "gfx90a", "elf"));
    assert!(rank("gfx942", AMD, "gfx942", "elf") > rank("gfx942", AMD, "gfx9-4-generic", "elf"));
    assert!(rank("gfx942", AMD, "gfx9-4-generic", "elf") > rank("gfx942", "spirv64-amd-amdhsa", "amdgcnspirv", "spirv"));
}

#[test]
fn devices_are_read_as_selectors_are() {
    for (text, shown) in [
        ("gfx90a:sramecc+:xnack-", "gfx90a:sramecc+:xnack-"),
        ("hip:gfx1101", "gfx1101"),
        ("openmp:amdgcn-amd-amdhsa:gfx90a:xnack+", "gfx90a:xnack+"),
        ("cuda:sm_90a", "sm_90"),
        ("sm_120", "sm_120"),
        ("x86-64-v3", "x86-64-v3"),
        ("x86_64-pc-linux-gnu", "x86-64"),
        ("aarch64-linux-gnu", "aarch64"),
    ] {
        assert_eq!(Wanted::parse(text).unwrap().device.to_string(), shown, "{text}");
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
        assert!(Wanted::parse(text).unwrap_err().to_string().contains("is no device"), "{text}");
    }
}
