//! NVIDIA's rules (CUDA C++ Programming Guide: Binary Compatibility, PTX Compatibility, Architecture-Specific and Family-Specific
//! Features; PTX ISA: Release Notes): machine code runs on its own major version from its minor version on, code for one processor
//! (`a`) only there, code for a family (`f`) within the family; PTX is compiled for every later processor, by a driver that knows
//! its version.

use super::{Code, Fit};

/// Tegra's processors. Their machine code and that of other GPUs do not run on each other.
const TEGRA: [(u32, u32); 7] = [(3, 2), (5, 3), (6, 2), (7, 2), (8, 7), (10, 1), (11, 0)];
/// Families: machine code for a member runs on it and on those after it.
const FAMILIES: [&[(u32, u32)]; 3] = [&[(10, 0), (10, 3)], &[(11, 0)], &[(12, 0), (12, 1)]];
/// Versions of PTX, and the first driver that knows each: that of the CUDA release in which it came (CUDA Toolkit Release Notes,
/// CUDA Toolkit and Corresponding Driver Versions).
const DRIVERS: [((u32, u32), u32); 27] = [
    ((6, 0), 384),
    ((6, 1), 387),
    ((6, 2), 396),
    ((6, 3), 410),
    ((6, 4), 418),
    ((6, 5), 440),
    ((7, 0), 450),
    ((7, 1), 455),
    ((7, 2), 460),
    ((7, 3), 465),
    ((7, 4), 470),
    ((7, 5), 495),
    ((7, 6), 510),
    ((7, 7), 515),
    ((7, 8), 520),
    ((8, 0), 525),
    ((8, 1), 530),
    ((8, 2), 535),
    ((8, 3), 545),
    ((8, 4), 550),
    ((8, 5), 555),
    ((8, 6), 565),
    ((8, 7), 570),
    ((8, 8), 575),
    ((9, 0), 580),
    ((9, 1), 590),
    ((9, 2), 595),
];

/// Machine code is taken rather than PTX, and of each the latest.
const MACHINE: u32 = 10_000;

/// Major and minor version of the number in a name: of `120`, 12 and 0. The major versions of all processors have one or two
/// digits; a number that is far larger is none.
pub(super) fn capability(number: &str) -> Option<(u32, u32)> {
    let (major, minor) = number.split_at_checked(number.len().checked_sub(1)?)?;
    Some((major.parse::<u16>().ok()?.into(), minor.parse().ok()?))
}

pub(super) fn takes(device: (u32, u32), driver: Option<u32>, code: &Code<'_>) -> Fit {
    let named = code.ptx.and_then(|head| head.target.as_deref()).unwrap_or(&code.target.arch);
    let number = named.strip_prefix("sm_").or_else(|| named.strip_prefix("compute_")).unwrap_or_default();
    let digits = number.trim_end_matches(['a', 'f']);
    let Some(image) = capability(digits) else { return Fit::Unknown("it does not say for which processor it is".to_owned()) };
    let letter = &number[digits.len()..];
    match letter {
        "a" if image != device => return Fit::No(format!("{named} runs on that processor alone")),
        "f" if !same_family(image, device) => return Fit::No(format!("{named} runs in its family alone")),
        _ => {}
    }
    let rank = image.0 * 100 + image.1 * 10 + if letter.is_empty() { 0 } else { 1 };
    match code.format {
        "ptx" => ptx(device, driver, code, (image, rank)),
        "bitcode" => Fit::Unknown("it is LLVM bitcode, which is not linked yet".to_owned()),
        _ if image.0 != device.0 => Fit::No(format!("machine code for {named} runs on processors {}.x", image.0)),
        _ if image.1 > device.1 => {
            Fit::No(format!("machine code for {named} runs on processors from {}.{} on", image.0, image.1))
        }
        _ if image != device && (TEGRA.contains(&image) || TEGRA.contains(&device)) => {
            Fit::No(format!("machine code for {named} and for Tegra do not run on each other"))
        }
        _ if image == device => Fit::Yes(MACHINE + rank, "machine code for it".to_owned()),
        _ => Fit::Yes(MACHINE + rank, format!("machine code for {named}, which later processors {}.x run", image.0)),
    }
}

/// Whether `device` is in the family of `image`, and no earlier one of it.
fn same_family(image: (u32, u32), device: (u32, u32)) -> bool {
    device >= image && FAMILIES.iter().any(|family| family.contains(&image) && family.contains(&device))
}

fn ptx(device: (u32, u32), driver: Option<u32>, code: &Code<'_>, (image, rank): ((u32, u32), u32)) -> Fit {
    if image > device {
        return Fit::No(format!("PTX for {}.{} is compiled for processors from there on", image.0, image.1));
    }
    let version = code.ptx.and_then(|head| head.version);
    let needed = version.and_then(|version| DRIVERS.iter().find(|(known, _)| *known == version)).map(|(_, driver)| *driver);
    let compiled = format!("PTX for {}.{}, which the driver compiles when it is loaded", image.0, image.1);
    match (needed, driver) {
        (Some(needed), Some(driver)) if driver < needed => {
            Fit::No(format!("its version of PTX needs driver {needed} or later, and this is {driver}"))
        }
        (Some(needed), _) => Fit::Yes(rank, format!("{compiled} (driver {needed} or later)")),
        (None, _) => match version {
            Some((major, minor)) => Fit::Yes(rank, format!("{compiled} (a driver that knows PTX {major}.{minor})")),
            None => Fit::Yes(rank, compiled),
        },
    }
}

pub(super) fn distance((major, minor): (u32, u32), arch: &str) -> u32 {
    let number = arch.trim_start_matches("sm_").trim_end_matches(['a', 'f']);
    capability(number).map_or(u32::MAX - 1, |(other, of)| other.abs_diff(major) * 100 + of.abs_diff(minor))
}
