//! NVIDIA's rules (CUDA C++ Programming Guide: Binary Compatibility, PTX Compatibility,
//! Architecture-Specific and Family-Specific Features; PTX ISA: Release Notes). Machine code runs
//! on processors of its major version with the same or a later minor version. Code for one
//! processor (`a`) runs only there, and code for a family (`f`) only within the family. PTX is
//! compiled for every later processor, by a driver that knows its PTX version.

use super::{Code, Fit};

/// The rank of machine code, which runtimes prefer to PTX. Within machine code and within PTX, the
/// latest version ranks highest.
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
        "ptx" => ptx(device, driver, code, image, rank),
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

/// Returns the major version of the first driver that knows a version of PTX, if the table has it.
pub fn first_driver(version: (u32, u32)) -> Option<u32> {
    PTX_VERSIONS
        .iter()
        .find(|(known, _)| *known == version)
        .and_then(|(_, driver)| *driver)
}

/// Whether a driver knows a version of PTX; `None` if the tables do not decide it.
fn knows(driver: u32, version: (u32, u32)) -> Option<bool> {
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
    image: (u32, u32),
    rank: u32,
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
    let known = driver.map(|driver| (driver, knows(driver, version)));
    match (known, first_driver(version)) {
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

/// The exceptions of a processor. Machine code for a processor without a row follows the rules of
/// "Binary Compatibility".
struct Processor {
    /// The major and minor compute capability.
    capability: (u32, u32),
    /// The group of processors with compatible machine code.
    system: System,
    /// The first processor of its family. Code for a family (`f`) runs on the processor that it
    /// names and on later members.
    family: Option<(u32, u32)>,
}

/// Groups of processors with compatible machine code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum System {
    /// Discrete GPUs.
    Discrete,
    /// Tegra: machine code for one processor runs only on that processor.
    Tegra,
    /// Not documented.
    Unknown,
}

const fn processor(
    capability: (u32, u32),
    system: System,
    family: Option<(u32, u32)>,
) -> Processor {
    Processor {
        capability,
        system,
        family,
    }
}

/// Sources: NVIDIA, CUDA C++ Programming Guide, "Compute Capabilities" (which processors are Tegra)
/// and "Family-Specific Features" (families), and `ptxas --help` (which processor assembles PTX of
/// which family). Rows with another source name it.
#[rustfmt::skip]
const PROCESSORS: [Processor; 13] = [
    processor((3, 2), System::Tegra, None),
    processor((5, 3), System::Tegra, None),
    processor((6, 2), System::Tegra, None),
    processor((7, 2), System::Tegra, None),
    processor((8, 7), System::Tegra, None),
    processor((8, 8), System::Unknown, None), // Source: ptxas of CUDA 13.0.
    processor((10, 0), System::Discrete, Some((10, 0))),
    processor((10, 1), System::Tegra, None), // The name of 11.0 before CUDA 13.0.
    processor((10, 3), System::Discrete, Some((10, 0))),
    processor((10, 7), System::Discrete, Some((10, 0))), // Sources: ptxas of CUDA 13.4; NVIDIA/TensorRT-LLM#18758.
    processor((11, 0), System::Tegra, Some((11, 0))),
    processor((12, 0), System::Discrete, Some((12, 0))),
    processor((12, 1), System::Discrete, Some((12, 0))),
];

/// Versions of PTX, each with the first driver that knows it, if known: the driver of the CUDA
/// release that introduced the version.
///
/// Sources: NVIDIA, PTX ISA, "Release Notes" (the CUDA release), and CUDA Toolkit Release Notes,
/// "CUDA Toolkit and Corresponding Driver Versions". Rows with another source name it.
#[rustfmt::skip]
pub(super) const PTX_VERSIONS: [((u32, u32), Option<u32>); 30] = [
    ((6, 0), Some(384)),
    ((6, 1), Some(387)),
    ((6, 2), Some(396)),
    ((6, 3), Some(410)),
    ((6, 4), Some(418)),
    ((6, 5), Some(440)),
    ((7, 0), Some(450)),
    ((7, 1), Some(455)),
    ((7, 2), Some(460)),
    ((7, 3), Some(465)),
    ((7, 4), Some(470)),
    ((7, 5), Some(495)),
    ((7, 6), Some(510)),
    ((7, 7), Some(515)),
    ((7, 8), Some(520)),
    ((8, 0), Some(525)),
    ((8, 1), Some(530)),
    ((8, 2), Some(535)),
    ((8, 3), Some(545)),
    ((8, 4), Some(550)),
    ((8, 5), Some(555)),
    ((8, 6), Some(565)),
    ((8, 7), Some(570)),
    ((8, 8), Some(575)),
    ((9, 0), Some(580)),
    ((9, 1), Some(590)),
    ((9, 2), Some(595)),
    ((9, 3), Some(610)), // Source: the driver in the installer of CUDA 13.3.0.
    ((9, 4), Some(615)), // Source: NVIDIA, CUTLASS 4.8 release notes, for CUDA 13.4.
    ((9, 5), None), // Source: ptxas --list-version of CUDA 13.5.
];
