//! NVIDIA's rules (CUDA C++ Programming Guide: Binary Compatibility, PTX Compatibility,
//! Architecture-Specific and Family-Specific Features; PTX ISA: Release Notes). Machine code runs
//! on processors of its major version with the same or a later minor version. Code for one
//! processor (`a`) runs only there, and code for a family (`f`) only within the family. PTX is
//! compiled for every later processor, by a driver that knows its PTX version.

use super::nvidia_tables::{PROCESSORS, PTX_VERSIONS, Processor, System};
use super::{Code, Fit};

/// The rank of machine code, which runtimes prefer to PTX. Within each, the latest version ranks
/// highest.
const MACHINE: u32 = 10_000;

/// Splits the number in a processor's name into major and minor version: 12 and 0 for `120`. All
/// processors have major versions of one or two digits; a much larger number is not a processor.
pub(super) fn capability(number: &str) -> Option<(u32, u32)> {
    let (major, minor) = number.split_at_checked(number.len().checked_sub(1)?)?;
    Some((major.parse::<u16>().ok()?.into(), minor.parse().ok()?))
}

pub(super) fn takes(device: (u32, u32), driver: Option<u32>, code: &Code<'_>) -> Fit {
    let named = code
        .ptx
        .and_then(|head| head.target.as_deref())
        .unwrap_or(&code.target.arch);
    let number = named
        .strip_prefix("sm_")
        .or_else(|| named.strip_prefix("compute_"))
        .unwrap_or_default();
    let digits = number.trim_end_matches(['a', 'f']);
    let Some(image) = capability(digits) else {
        return Fit::Unknown("no processor is recorded".to_owned());
    };
    // The cubin's own header can be more specific than its container: tileiras for sm_120 assembles
    // for sm_120a.
    let header = code
        .gpu
        .filter(|_| code.format == "cubin")
        .map_or("", |gpu| &gpu.processor);
    let is_exact = header
        .strip_prefix("sm_")
        .and_then(|own| own.strip_suffix('a'))
        == Some(digits);
    let letter = if is_exact {
        "a"
    } else {
        &number[digits.len()..]
    };
    let named = if is_exact { header } else { named };
    match letter {
        "a" if image != device => return Fit::No(format!("only for {named}")),
        "f" if !same_family(image, device) => {
            return Fit::No(format!("only for the family of {named}"));
        }
        _ => {}
    }
    let rank = image.0 * 100 + image.1 * 10 + if letter.is_empty() { 0 } else { 1 };
    match code.format {
        "ptx" => ptx(device, driver, code, (image, rank)),
        "bitcode" => Fit::Unknown("LLVM bitcode, not linked yet".to_owned()),
        _ if image.0 != device.0 => Fit::No(format!("machine code for {}.x only", image.0)),
        _ if image.1 > device.1 => Fit::No(format!(
            "machine code for {0}.{1} and later {0}.x",
            image.0, image.1
        )),
        _ if image != device
            && [image, device]
                .iter()
                .any(|own| system(*own) == System::Tegra) =>
        {
            Fit::No(format!(
                "machine code for {named}: Tegra and other GPUs cannot share machine code"
            ))
        }
        _ if image != device
            && [image, device]
                .iter()
                .any(|own| system(*own) == System::Unknown) =>
        {
            Fit::Unknown(format!(
                "not documented whether machine code for {named} runs on processor {}.{}",
                device.0, device.1
            ))
        }
        _ if image == device => Fit::Yes(MACHINE + rank, "machine code".to_owned()),
        _ => Fit::Yes(
            MACHINE + rank,
            format!(
                "machine code for {named}, which runs on later {}.x",
                image.0
            ),
        ),
    }
}

/// Returns the table row of a processor, if it has one.
fn row(capability: (u32, u32)) -> Option<&'static Processor> {
    PROCESSORS.iter().find(|row| row.capability == capability)
}

fn system(capability: (u32, u32)) -> System {
    row(capability).map_or(System::Discrete, |row| row.system)
}

/// Whether `device` is in the family of `image`, and not earlier than `image`.
fn same_family(image: (u32, u32), device: (u32, u32)) -> bool {
    let family = |capability| row(capability).and_then(|row| row.family);
    device >= image && family(image).is_some() && family(image) == family(device)
}

/// Whether a driver knows a version of PTX; `None` if the tables do not decide it.
fn knows(driver: u32, version: (u32, u32)) -> Option<bool> {
    let first_driver = |version: (u32, u32)| {
        PTX_VERSIONS
            .iter()
            .find(|(known, _)| *known == version)
            .and_then(|(_, driver)| *driver)
    };
    if let Some(first) = first_driver(version) {
        return Some(driver >= first);
    }
    // Drivers learn PTX versions in order, so the neighbors in the table limit an unlisted version.
    let earlier = PTX_VERSIONS
        .iter()
        .filter(|(known, _)| *known < version)
        .filter_map(|(_, driver)| *driver)
        .max();
    let later = PTX_VERSIONS
        .iter()
        .filter(|(known, _)| *known > version)
        .filter_map(|(_, driver)| *driver)
        .min();
    match (earlier, later) {
        (Some(earlier), _) if driver < earlier => Some(false),
        (_, Some(later)) if driver >= later => Some(true),
        _ => None,
    }
}

fn ptx(
    device: (u32, u32),
    driver: Option<u32>,
    code: &Code<'_>,
    (image, rank): ((u32, u32), u32),
) -> Fit {
    if image > device {
        return Fit::No(format!("PTX for {}.{} and later", image.0, image.1));
    }
    let version = code.ptx.and_then(|head| head.version);
    let compiled = format!("PTX for {}.{}, compiled by", image.0, image.1);
    let Some(version) = version else {
        return Fit::Yes(rank, format!("{compiled} the driver"));
    };
    let of_version = format!("PTX {}.{}", version.0, version.1);
    let first = PTX_VERSIONS
        .iter()
        .find(|(known, _)| *known == version)
        .and_then(|(_, driver)| *driver);
    match (driver.map(|driver| (driver, knows(driver, version))), first) {
        (Some((driver, Some(false))), Some(first)) => Fit::No(format!(
            "{of_version} needs driver {first} or later; this is driver {driver}"
        )),
        (Some((driver, Some(false))), None) => {
            Fit::No(format!("{of_version} is newer than driver {driver}"))
        }
        (Some((driver, None)), _) => Fit::Unknown(format!(
            "unknown whether driver {driver} supports {of_version}"
        )),
        (_, Some(first)) => Fit::Yes(rank, format!("{compiled} driver {first} or later")),
        (_, None) => Fit::Yes(
            rank,
            format!("{compiled} a driver that supports {of_version}"),
        ),
    }
}

pub(super) fn distance((major, minor): (u32, u32), arch: &str) -> u32 {
    let number = arch.trim_start_matches("sm_").trim_end_matches(['a', 'f']);
    capability(number).map_or(u32::MAX - 1, |(other_major, other_minor)| {
        other_major.abs_diff(major) * 100 + other_minor.abs_diff(minor)
    })
}
