//! Selects the images of the merged file and their order. Images are grouped in units: a runtime
//! loads one image of each unit. A unit of the result has the images of the same unit in every
//! build.

use std::collections::BTreeMap;

use anyhow::{Result, bail};

use crate::contents::report::{FileReport, Image};
use crate::contents::units::{self, Content, Unit, listed, name, names, target};
use offload_formats::bundle::Id;
use offload_formats::gpu::canonical_target_id;
use offload_formats::kernels::shown_name;
use offload_formats::model::{OffloadKind, printable};
use offload_formats::target::Target;

/// The images of one unit of the merged file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MergedUnit {
    /// The archive members that contain it, the outermost first.
    pub(crate) members: Vec<String>,
    /// Its runtime.
    pub(crate) kind: OffloadKind,
    /// Its index among the units of this runtime in its object or program.
    pub(crate) index: usize,
    /// Its location in the first build, for messages.
    pub(crate) place: String,
    /// Its images, in the order that a link for all devices would produce.
    pub(crate) images: Vec<Taken>,
}

/// An image of the merged file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Taken {
    /// The build that provides it, by its index.
    pub(crate) build: usize,
    /// Its number in that build's report.
    pub(crate) image: usize,
    /// Copies for the same target in other builds, which are left out: build and image number.
    pub(crate) also: Vec<(usize, usize)>,
}

/// Identifies an object or program in every build: its archive members, and its index among those
/// of the same name.
type ContentKey<'f> = (&'f [String], usize);
/// Identifies a unit in every build.
type UnitKey<'f> = (ContentKey<'f>, OffloadKind, usize);
/// The units of a build.
type Units<'f> = BTreeMap<UnitKey<'f>, Unit<'f>>;

/// Selects the images of a merge of `builds`, the reports on files of one source that were compiled
/// for different devices. The reports must include kernels, registrations and hashes.
///
/// # Errors
/// The builds do not match: a build cannot be read; a build lacks a unit; an image contradicts the
/// label of its container; an image lacks a registered kernel; two images for one target differ; or
/// two targets are ambiguous, so that a runtime could load either.
pub(crate) fn check_images(builds: &[FileReport]) -> Result<Vec<MergedUnit>> {
    for report in builds {
        if let Some(error) = report.errors.first() {
            bail!("{}", printable(error));
        }
    }
    let all: Vec<Units<'_>> = builds.iter().map(units_of).collect();
    let Some(first) = all.first() else {
        return Ok(Vec::new());
    };
    for (index, units) in all.iter().enumerate() {
        same_units(builds, (0, first), (index, units))?;
    }
    let mut merged = Vec::new();
    for (key, unit) in first {
        let together: Vec<&Unit<'_>> = all.iter().filter_map(|units| units.get(key)).collect();
        for (build, unit) in together.iter().enumerate() {
            check_unit(&location(builds, build, key), unit)?;
        }
        same_kernels(builds, key, &together)?;
        let ((members, _), kind, index) = *key;
        let images = order(builds, key, &together)?;
        merged.push(MergedUnit {
            members: members.to_vec(),
            kind,
            index,
            place: unit.place.clone(),
            images,
        });
    }
    Ok(merged)
}

/// The units of a build, by key.
fn units_of(report: &FileReport) -> Units<'_> {
    let mut seen: BTreeMap<&[String], usize> = BTreeMap::new();
    let mut all = Units::new();
    for content in &units::contents(report) {
        let number = seen.entry(content.members).or_insert(0);
        for (index, kind, unit) in numbered(content) {
            all.insert(((content.members, *number), kind, index), unit);
        }
        *number += 1;
    }
    all
}

/// The units of an object or program, each with its index among those of its runtime.
fn numbered<'f>(content: &Content<'f>) -> Vec<(usize, OffloadKind, Unit<'f>)> {
    let mut next: BTreeMap<OffloadKind, usize> = BTreeMap::new();
    let mut each = |unit: Unit<'f>| {
        let number = next.entry(unit.kind).or_insert(0);
        *number += 1;
        (*number - 1, unit.kind, unit)
    };
    units::of(content).into_iter().map(&mut each).collect()
}

/// Checks that two builds have the same units.
fn same_units(
    builds: &[FileReport],
    (one, first): (usize, &Units<'_>),
    (other, second): (usize, &Units<'_>),
) -> Result<()> {
    for ((build, units), (missing, theirs)) in [
        ((one, first), (other, second)),
        ((other, second), (one, first)),
    ] {
        let Some((key, _)) = units.iter().find(|(key, _)| !theirs.contains_key(*key)) else {
            continue;
        };
        let (content, kind, _) = key;
        let there: Vec<&str> = theirs
            .keys()
            .filter(|(other, ..)| other == content)
            .map(|(_, kind, _)| kind.title())
            .collect();
        let has = match there.as_slice() {
            [] => "none".to_owned(),
            kinds if kinds.contains(&kind.title()) => "fewer containers".to_owned(),
            kinds => format!("device code for {}", kinds.join(" and ")),
        };
        let place = location(builds, build, key);
        bail!(
            "{place} has device code for {}, but {} has {has} in its place",
            kind.title(),
            file(builds, missing)
        );
    }
    Ok(())
}

/// Checks a single unit.
fn check_unit(place: &str, unit: &Unit<'_>) -> Result<()> {
    for image in &unit.images {
        if let Some(disagreement) = units::disagreement(image) {
            bail!("{place}: {}", disagreement.text);
        }
    }
    let Some(kernels) = unit
        .kernels
        .as_ref()
        .filter(|_| !unit.shares_entries && unit.kind != OffloadKind::Sycl)
    else {
        return Ok(());
    };
    if unit.images.is_empty() && !kernels.is_empty() {
        bail!(
            "{place}: {} kernels are registered with {}, but no image has them",
            kernels.len(),
            unit.kind.title()
        );
    }
    for image in &unit.images {
        let Some(names) = names(image) else { continue };
        if let Some(kernel) = kernels
            .iter()
            .flatten()
            .find(|kernel| !names.contains(**kernel))
        {
            bail!(
                "{place}: kernel `{}` is registered and not in image {} ({})",
                shown_name(kernel),
                image.index,
                name(image)
            );
        }
    }
    Ok(())
}

/// Checks that no build lacks a kernel of another build, if no table lists the registered kernels.
fn same_kernels(builds: &[FileReport], key: &UnitKey<'_>, units: &[&Unit<'_>]) -> Result<()> {
    // Each SYCL image has only some of the kernels.
    if key.1 == OffloadKind::Sycl
        || units
            .iter()
            .all(|unit| unit.kernels.is_some() && !unit.shares_entries)
    {
        return Ok(());
    }
    let images = units
        .iter()
        .enumerate()
        .flat_map(|(build, unit)| unit.images.iter().map(move |image| (build, *image)));
    let known: Vec<_> = images
        .filter_map(|(build, image)| Some((build, image, listed(image)?)))
        .collect();
    for (one, has, kernels) in &known {
        for (other, lacks, theirs) in known.iter().filter(|(other, ..)| other != one) {
            if let Some(kernel) = kernels.difference(theirs).next() {
                let (place, kernel) = (location(builds, *other, key), shown_name(kernel));
                let source = file(builds, *one);
                bail!(
                    "{place}: kernel `{kernel}` is not in image {} ({}), but {source} has it for {}",
                    lacks.index,
                    name(lacks),
                    name(has)
                );
            }
        }
    }
    Ok(())
}

/// The selected images of a unit, in the order of a link.
fn order(builds: &[FileReport], key: &UnitKey<'_>, units: &[&Unit<'_>]) -> Result<Vec<Taken>> {
    // The images for each target, by build. An object that was linked from several objects has
    // several images for a target.
    let mut by_target: BTreeMap<(Target, &'static str), BTreeMap<usize, Vec<&Image>>> =
        BTreeMap::new();
    for (build, unit) in units.iter().enumerate() {
        for image in &unit.images {
            // A driver uses PTX only if there is no machine code, so both may exist.
            let format = if image.format == "ptx" { "ptx" } else { "code" };
            let of_target = by_target.entry((canonical(image), format)).or_default();
            of_target.entry(build).or_default().push(image);
        }
    }
    ambiguous(builds, key, &by_target)?;
    let mut taken = Vec::new();
    for of_target in by_target.values() {
        let Some((build, images)) = of_target.first_key_value() else {
            continue;
        };
        let mut also = vec![Vec::new(); images.len()];
        for (other, theirs) in of_target.iter().skip(1) {
            let is_same = |(one, other): (&&Image, &&Image)| {
                one.sha256.is_some() && one.sha256 == other.sha256
            };
            if images.len() != theirs.len() || !images.iter().zip(theirs).all(is_same) {
                let (place, other) = (location(builds, *build, key), file(builds, *other));
                let target = images.first().map(|image| name(image)).unwrap_or_default();
                bail!(
                    "{place} and {other} have different images for {target}: a runtime would take only one of them"
                );
            }
            also.iter_mut()
                .zip(theirs)
                .for_each(|(also, image)| also.push((*other, image.index)));
        }
        taken.extend(images.iter().zip(also).map(|(image, also)| Taken {
            build: *build,
            image: image.index,
            also,
        }));
    }
    Ok(taken)
}

/// Checks that no two builds have a target id with and without a setting of the same feature: a
/// runtime could load either image.
fn ambiguous<V>(
    builds: &[FileReport],
    key: &UnitKey<'_>,
    by_target: &BTreeMap<(Target, &'static str), BTreeMap<usize, V>>,
) -> Result<()> {
    let all: Vec<_> = by_target
        .iter()
        .map(|((target, _), builds)| (target, id(target), builds))
        .collect();
    for (at, (target, id, of_builds)) in all.iter().enumerate() {
        for (other, other_id, theirs) in all.iter().skip(at + 1) {
            let together = of_builds.keys().any(|build| theirs.contains_key(build));
            if together || !id.is_in_conflict(other_id) {
                continue;
            }
            let [one, two] =
                [of_builds, theirs].map(|builds| builds.keys().next().copied().unwrap_or_default());
            let (place, source) = (location(builds, one, key), file(builds, two));
            bail!(
                "{place} has an image for {target}, and {source} for {other}: a runtime takes the first on a device that runs both"
            );
        }
    }
    Ok(())
}

/// A target as the id of a bundle entry, because the bundle rules define conflicts.
fn id(target: &Target) -> Id {
    Id {
        kind: "hip".to_owned(),
        triple: target.triple.clone(),
        target_id: target.arch.clone(),
    }
}

/// The target of an image, with its target id in the spelling of compilers.
fn canonical(image: &Image) -> Target {
    let target = target(image);
    let arch = if target.is_amdgcn() {
        canonical_target_id(&target.arch)
    } else {
        target.arch.clone()
    };
    Target::new(&target.triple, &arch)
}

/// The file of a build, for messages.
fn file(builds: &[FileReport], build: usize) -> String {
    builds
        .get(build)
        .map(|report| printable(&report.file).into_owned())
        .unwrap_or_default()
}

/// The location of a unit in a build, for messages.
fn location(builds: &[FileReport], build: usize, ((members, _), ..): &UnitKey<'_>) -> String {
    members.iter().fold(file(builds, build), |text, member| {
        format!("{text}({})", printable(member))
    })
}

/// Tests with generated objects, whose images are CPU code compiled by `cc`, or arbitrary bytes
/// with a target name.
#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::sync::Arc;

    use object::write::{Object, Relocation, Symbol, SymbolSection};
    use object::{
        Architecture, BinaryFormat, Endianness, RelocationFlags, SectionKind, SymbolFlags,
        SymbolKind, SymbolScope, elf,
    };

    use super::*;
    use crate::contents::{Options, Reader};
    use offld_system::session::{Session, SessionOptions};
    use offld_system::shell::Shell;
    use offload_formats::model::ImageKind;
    use offload_formats::offload_binary;

    const CPU: &str = "x86_64-pc-linux-gnu";
    const AMD: &str = "amdgcn-amd-amdhsa";
    /// The prefix of kernel names in CPU images.
    const PREFIX: &str = "__omp_offloading_1_2_";
    const OPENMP: u16 = 1;
    const HIP: u16 = 4;

    /// An image: its kind, triple, target and bytes.
    type Given<'a> = (u16, &'a str, &'a str, &'a [u8]);

    /// A shared object with these functions.
    fn library(kernels: &[&str]) -> Vec<u8> {
        let folder = tempfile::tempdir().unwrap();
        let (source, output) = (
            folder.path().join("device.c"),
            folder.path().join("device.so"),
        );
        std::fs::write(
            &source,
            kernels
                .iter()
                .map(|name| format!("void {PREFIX}{name}(void) {{}}\n"))
                .collect::<String>(),
        )
        .unwrap();
        assert!(
            Command::new("cc")
                .args(["-shared", "-fPIC", "-nostdlib", "-o"])
                .arg(&output)
                .arg(&source)
                .status()
                .unwrap()
                .success()
        );
        std::fs::read(output).unwrap()
    }

    /// A host object that registers `kernels` with OpenMP, and has these images.
    fn host(kernels: &[&str], images: &[Given<'_>]) -> Vec<u8> {
        let mut object = Object::new(BinaryFormat::Elf, Architecture::X86_64, Endianness::Little);
        let device = object.add_section(
            Vec::new(),
            b".llvm.offloading".to_vec(),
            SectionKind::ReadOnlyData,
        );
        for (kind, triple, target, bytes) in images {
            let strings = [("triple", *triple), ("arch", *target)];
            object.append_section_data(
                device,
                &offload_binary::write(ImageKind::Object, *kind, 0, &strings, bytes),
                8,
            );
        }
        let names = object.add_section(Vec::new(), b".rodata".to_vec(), SectionKind::ReadOnlyData);
        let table = object.add_section(
            Vec::new(),
            b"llvm_offload_entries".to_vec(),
            SectionKind::Data,
        );
        let symbol = object.add_symbol(Symbol {
            name: b"names".to_vec(),
            value: 0,
            size: 0,
            kind: SymbolKind::Data,
            scope: SymbolScope::Compilation,
            weak: false,
            section: SymbolSection::Section(names),
            flags: SymbolFlags::None,
        });
        for name in kernels {
            let name = object.append_section_data(names, format!("{PREFIX}{name}\0").as_bytes(), 1);
            let entry = [
                &[0; 8][..],
                &1_u16.to_le_bytes(),
                &OPENMP.to_le_bytes(),
                &[0; 44],
            ]
            .concat();
            let entry = object.append_section_data(table, &entry, 8);
            let flags = RelocationFlags::Elf {
                r_type: elf::R_X86_64_64,
            };
            object
                .add_relocation(
                    table,
                    Relocation {
                        offset: entry + 24,
                        symbol,
                        addend: name as i64,
                        flags,
                    },
                )
                .unwrap();
        }
        object.write().unwrap()
    }

    fn report(name: &str, bytes: &[u8]) -> FileReport {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        let shell = Arc::new(Shell::from_write("test", Box::new(std::io::sink())));
        let session = Session::new(shell, SessionOptions::default());
        let options = Options {
            kernels: true,
            registered: true,
            ..Options::default()
        };
        let report = Reader::new(options, &session).open(&path).unwrap();
        FileReport {
            file: name.to_owned(),
            ..report
        }
    }

    /// The plan for these builds, or the error.
    fn plan(builds: &[&[u8]]) -> Result<Vec<MergedUnit>, String> {
        let reports: Vec<_> = builds
            .iter()
            .zip(1..)
            .map(|(bytes, number)| report(&format!("b{number}"), bytes))
            .collect();
        for report in &reports {
            assert_eq!(report.errors, [""; 0]);
        }
        check_images(&reports).map_err(|error| error.to_string())
    }

    #[test]
    fn images_come_in_the_order_of_a_link_whatever_the_order_of_builds() {
        let cpu = library(&["one", "two"]);
        let build =
            |target: &str| host(&["one", "two"], &[(OPENMP, AMD, target, target.as_bytes())]);
        let (first, second) = (build("gfx908"), build("gfx90a:xnack+"));
        let (third, fourth) = (
            build("gfx90a:xnack-"),
            host(&["one", "two"], &[(OPENMP, CPU, "", &cpu)]),
        );
        let found = plan(&[&first, &second, &third, &fourth]).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].kind, found[0].index), (OffloadKind::OpenMp, 0));
        let builds = |unit: &MergedUnit| {
            unit.images
                .iter()
                .map(|image| image.build)
                .collect::<Vec<_>>()
        };
        assert_eq!(builds(&found[0]), [3, 2, 1, 0]);
        assert_eq!(
            builds(&plan(&[&fourth, &third, &second, &first]).unwrap()[0]),
            [0, 1, 2, 3]
        );
        assert!(check_images(&[]).unwrap().is_empty());
    }

    #[test]
    fn the_same_image_is_taken_once_and_another_for_its_target_is_refused() {
        let cpu = library(&["one"]);
        let first = host(&["one"], &[(OPENMP, CPU, "", &cpu)]);
        let second = host(
            &["one"],
            &[(OPENMP, CPU, "", &cpu), (OPENMP, AMD, "gfx908", b"one")],
        );
        let found = plan(&[&first, &second]).unwrap();
        let expected = [
            Taken {
                build: 0,
                image: 0,
                also: vec![(1, 0)],
            },
            Taken {
                build: 1,
                image: 1,
                also: Vec::new(),
            },
        ];
        assert_eq!(found[0].images, expected);
        let other = host(&["one"], &[(OPENMP, CPU, "", &library(&["one", "more"]))]);
        let message = plan(&[&first, &other]).unwrap_err();
        assert_eq!(
            message,
            "b1 and b2 have different images for x86_64-pc-linux-gnu: a runtime would take only one of them"
        );
        // Two spellings of one target.
        let spelled = |target: &str, bytes: &[u8]| host(&["one"], &[(OPENMP, AMD, target, bytes)]);
        let message = plan(&[
            &spelled("gfx90a:xnack+:sramecc-", b"a"),
            &spelled("gfx90a:sramecc-:xnack+", b"b"),
        ])
        .unwrap_err();
        assert!(
            message.ends_with("a runtime would take only one of them"),
            "{message}"
        );
    }

    #[test]
    fn a_kernel_that_an_image_lacks_is_named() {
        let whole = host(
            &["one", "two"],
            &[(OPENMP, CPU, "", &library(&["one", "two"]))],
        );
        let part = host(
            &["one", "two"],
            &[(OPENMP, CPU, "haswell", &library(&["one"]))],
        );
        let message = plan(&[&whole, &part]).unwrap_err();
        assert_eq!(
            message,
            "b2: kernel `__omp_offloading_1_2_two` is registered and not in image 0 (x86_64-pc-linux-gnu (haswell))"
        );
        let none = host(&["one", "two"], &[]);
        assert_eq!(
            plan(&[&whole, &none]).unwrap_err(),
            "b2: 2 kernels are registered with OpenMP, but no image has them"
        );
        // Without a table of kernels, images are compared with each other.
        let build =
            |target: &str, kernels: &[&str]| host(&[], &[(HIP, CPU, target, &library(kernels))]);
        assert_eq!(
            plan(&[&build("a", &["one"]), &build("b", &["one"])]).unwrap()[0]
                .images
                .len(),
            2
        );
        let message = plan(&[&build("a", &["one"]), &build("b", &["one", "two"])]).unwrap_err();
        assert_eq!(
            message,
            "b1: kernel `__omp_offloading_1_2_two` is not in image 0 (x86_64-pc-linux-gnu (a)), but b2 has it for x86_64-pc-linux-gnu (b)"
        );
    }

    #[test]
    fn targets_that_a_runtime_cannot_tell_apart_are_refused() {
        let build = |target: &str| host(&[], &[(OPENMP, AMD, target, target.as_bytes())]);
        let message = plan(&[&build("gfx90a"), &build("gfx90a:xnack+")]).unwrap_err();
        let expected = "b2 has an image for amdgcn-amd-amdhsa (gfx90a:xnack+), and b1 for amdgcn-amd-amdhsa (gfx90a): \
                    a runtime takes the first on a device that runs both";
        assert_eq!(message, expected);
        assert!(plan(&[&build("gfx90a:xnack-"), &build("gfx90a:xnack+")]).is_ok());
        assert!(plan(&[&build("gfx90a"), &build("gfx908:xnack+")]).is_ok());
    }

    #[test]
    fn builds_with_other_kinds_or_none_are_refused() {
        let build = |kind: u16| host(&[], &[(kind, AMD, "gfx908", b"a")]);
        let message = plan(&[&build(OPENMP), &build(HIP)]).unwrap_err();
        assert_eq!(
            message,
            "b1 has device code for OpenMP, but b2 has device code for HIP in its place"
        );
        let message = plan(&[&build(OPENMP), &host(&[], &[])]).unwrap_err();
        assert_eq!(
            message,
            "b1 has device code for OpenMP, but b2 has none in its place"
        );
    }

    #[test]
    fn an_image_that_is_not_what_its_container_says_is_refused() {
        // An image for gfx908 that is labelled as gfx90a.
        let mut image = library(&["one"]);
        image[18..20].copy_from_slice(&elf::EM_AMDGPU.0.to_le_bytes());
        image[7] = 64;
        image[8] = 2;
        image[48..52].copy_from_slice(&0x30_u32.to_le_bytes());
        let build = |target: &str| host(&[], &[(OPENMP, AMD, target, &image)]);
        assert!(plan(&[&build("gfx908")]).is_ok());
        let message = plan(&[&build("gfx90a")]).unwrap_err();
        assert!(
            message
                .contains("is labelled as amdgcn-amd-amdhsa (gfx90a), but its own header is for"),
            "{message}"
        );
    }
}
