//! Architectures whose images are redundant, because their devices also take the images of another
//! architecture in the file, by the rules of [`crate::target::device`].

use std::collections::BTreeMap;

use serde::Serialize;

use super::ImageSize;
use crate::target::Target;
use crate::target::device::{Code, Fit, Wanted};

/// An architecture whose devices also take the images of another one.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Served {
    /// The architecture.
    pub arch: String,
    /// The architecture with these other images.
    pub by: String,
    /// The number of its images.
    pub images: u64,
    /// The bytes of its images in the file.
    pub file: u64,
    /// The uncompressed bytes of its images.
    pub inflated: u64,
}

/// Finds all such architectures, the largest first. Only images in the same file and for the same
/// programming model are compared.
pub(super) fn find(images: &[ImageSize]) -> Vec<Served> {
    let mut groups: BTreeMap<(&str, &str), BTreeMap<&str, Vec<&ImageSize>>> = BTreeMap::new();
    // PTX does not replace machine code, because it is compiled when a program starts.
    for image in images
        .iter()
        .filter(|image| matches!(image.format.as_str(), "elf" | "cubin"))
    {
        groups
            .entry((&image.input, &image.kind))
            .or_default()
            .entry(&image.arch)
            .or_default()
            .push(image);
    }
    // The result has neither files nor models, so their values are added up.
    let mut found: BTreeMap<(&str, &str), Served> = BTreeMap::new();
    for archs in groups.values() {
        for (arch, of_arch) in archs {
            let others = archs.iter().filter(|(other, _)| *other != arch);
            // If two architectures serve one another, only one of them is listed.
            let serves = |(other, of_other): &(&&str, &Vec<&ImageSize>)| {
                serves(of_other, arch) && (*other < arch || !serves(of_arch, other))
            };
            let Some((by, _)) = others.clone().find(|one| serves(one)) else {
                continue;
            };
            let (arch, by): (&str, &str) = (arch, by);
            let none = || Served {
                arch: arch.to_owned(),
                by: by.to_owned(),
                images: 0,
                file: 0,
                inflated: 0,
            };
            let served = found.entry((arch, by)).or_insert_with(none);
            served.images += of_arch.len() as u64;
            served.file += of_arch.iter().map(|image| image.file).sum::<u64>();
            served.inflated += of_arch.iter().map(|image| image.inflated).sum::<u64>();
        }
    }
    let mut found: Vec<Served> = found.into_values().collect();
    // Entries of the same size stay in the order of their names.
    found.sort_by_key(|one| std::cmp::Reverse(one.file));
    found
}

/// Whether devices of `arch` take one of these images, which are for another architecture.
fn serves(images: &[&ImageSize], arch: &str) -> bool {
    // Code for the features of one device (`sm_90a`) is there for these features. It neither
    // replaces other code nor is replaced by it.
    let of_one = |arch: &str| arch.starts_with("sm_") && arch.ends_with(['a', 'f']);
    let Some(wanted) = Wanted::parse(arch).ok().filter(|_| !of_one(arch)) else {
        return false;
    };
    images
        .iter()
        .filter(|image| !of_one(&image.arch))
        .any(|image| {
            let target = Target::new(&image.triple, &image.target);
            let code = Code {
                target: &target,
                format: &image.format,
                gpu: None,
                abi_version: None,
                ptx: None,
            };
            matches!(wanted.device.takes(&code), Fit::Yes(..))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(kind: &str, triple: &str, target: &str, format: &str) -> ImageSize {
        let text = str::to_owned;
        ImageSize {
            input: text("lib"),
            place: String::new(),
            kind: text(kind),
            triple: text(triple),
            target: text(target),
            arch: text(target),
            format: text(format),
            file: 10,
            inflated: 20,
        }
    }

    #[test]
    fn what_another_architecture_serves_is_told() {
        let cuda = |target| image("cuda", "nvptx64-nvidia-cuda", target, "cubin");
        let hip = |target| image("hip", "amdgcn-amd-amdhsa", target, "elf");
        let all = [
            cuda("sm_80"),
            cuda("sm_86"),
            cuda("sm_90"),
            cuda("sm_90a"),
            hip("gfx942"),
            hip("gfx9-4-generic"),
            hip("gfx90a"),
            hip("gfx90a:xnack+"),
            image("hip", "nvptx64-nvidia-cuda", "sm_89", "cubin"),
        ];
        let lines: Vec<String> = find(&all)
            .iter()
            .map(|one| format!("{} by {}", one.arch, one.by))
            .collect();
        assert_eq!(
            lines,
            [
                "gfx90a:xnack+ by gfx90a",
                "gfx942 by gfx9-4-generic",
                "sm_86 by sm_80"
            ]
        );
        let other = |target| ImageSize {
            input: "other".to_owned(),
            ..cuda(target)
        };
        let two_files = [
            cuda("sm_80"),
            cuda("sm_86"),
            other("sm_80"),
            other("sm_86"),
            other("sm_86"),
        ];
        let lines = find(&two_files)
            .into_iter()
            .map(|one| (one.arch, one.by, one.images, one.file, one.inflated));
        let expected = ("sm_86".to_owned(), "sm_80".to_owned(), 3, 30, 60);
        assert_eq!(
            lines.collect::<Vec<_>>(),
            [expected],
            "the files are added up"
        );
        // Images of another file do not count.
        assert_eq!(find(&[cuda("sm_80"), other("sm_86")]).len(), 0);
    }
}
