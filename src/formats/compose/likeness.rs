//! The order of images that puts similar ones next to each other. A compressor stores shared
//! content once, but only within its window.

use crate::formats::gpu::{AmdArch, TargetId};

/// The properties that decide whether images are similar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Likeness<'a> {
    /// The triple.
    pub triple: &'a str,
    /// The processor or target ID. Empty if there is none.
    pub target: &'a str,
    /// The kernel names, in any order.
    pub kernels: &'a [&'a str],
}

/// Returns the indices of `images`, grouped by triple and processor family, and within a family by
/// kernel names. Families, and the images of a family, stay in the order of their first occurrence.
///
/// A runtime takes the first image that fits, so images that the same device might accept keep
/// their order. They are in one family, and kernels only matter if each image of the family is for
/// a different processor.
///
/// ```
/// use offld::formats::compose::{Likeness, by_likeness};
///
/// let image = |target| Likeness { triple: "amdgcn-amd-amdhsa", target, kernels: &["k"] };
/// assert_eq!(by_likeness(&["gfx906", "gfx1100", "gfx90a", "gfx1030", "gfx1101"].map(image)), [0, 2, 1, 4, 3]);
/// ```
pub fn by_likeness(images: &[Likeness<'_>]) -> Vec<usize> {
    let mut families: Vec<(String, Vec<usize>)> = Vec::new();
    for (place, image) in images.iter().enumerate() {
        let family = family(image);
        match families.iter_mut().find(|(known, _)| *known == family) {
            Some((_, places)) => places.push(place),
            None => families.push((family, vec![place])),
        }
    }
    families
        .into_iter()
        .flat_map(|(_, places)| by_kernels(images, places))
        .collect()
}

/// The group of images that are compiled for nearly the same instructions. All NVIDIA images are
/// one family, because code for one architecture may run on others.
fn family(image: &Likeness<'_>) -> String {
    let of_name = || AmdArch::of_processor(image.target);
    let of_triple = || AmdArch::of_triple(image.triple).filter(|arch| !arch.is_any());
    match of_name().or_else(of_triple) {
        Some(arch) => format!("amdgcn {}", arch.major()),
        None => image.triple.to_owned(),
    }
}

/// Groups the images at `places`, which are of one family, by kernel names.
fn by_kernels(images: &[Likeness<'_>], places: Vec<usize>) -> Vec<usize> {
    let image_at = |place: &usize| images.get(*place);
    let processors: Vec<&str> = places.iter().filter_map(image_at).map(processor).collect();
    let all_distinct = processors.iter().enumerate().all(|(at, name)| {
        is_single_processor(name) && !processors.iter().take(at).any(|other| other == name)
    });
    if !all_distinct {
        return places;
    }
    let kernels = |place: &usize| {
        let mut names = image_at(place).map_or_else(Vec::new, |image| image.kernels.to_vec());
        names.sort_unstable();
        names.dedup();
        names
    };
    let mut groups: Vec<(Vec<&str>, Vec<usize>)> = Vec::new();
    for place in places {
        let names = kernels(&place);
        match groups.iter_mut().find(|(known, _)| *known == names) {
            Some((_, places)) => places.push(place),
            None => groups.push((names, vec![place])),
        }
    }
    groups.into_iter().flat_map(|(_, places)| places).collect()
}

fn processor<'a>(image: &Likeness<'a>) -> &'a str {
    TargetId::parse(image.target).map_or(image.target, |id| id.processor)
}

/// Whether a name is that of a single AMD processor, whose images no other device accepts.
fn is_single_processor(processor: &str) -> bool {
    processor.starts_with("gfx") && !processor.ends_with("-generic")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(images: &[(&str, &str, &[&str])]) -> Vec<usize> {
        let all: Vec<_> = images
            .iter()
            .map(|(triple, target, kernels)| Likeness {
                triple,
                target,
                kernels,
            })
            .collect();
        by_likeness(&all)
    }

    const AMD: &str = "amdgcn-amd-amdhsa";

    #[test]
    fn families_and_kernels_stand_together() {
        let (one, other): (&[&str], &[&str]) = (&["a", "b"], &["c"]);
        let twisted: &[&str] = &["b", "a", "b"];
        assert_eq!(
            order(&[
                (AMD, "gfx906", one),
                (AMD, "gfx908", other),
                (AMD, "gfx1030", one),
                (AMD, "gfx90a", twisted)
            ]),
            [0, 3, 1, 2]
        );
        assert_eq!(order(&[]), [0; 0]);
        // The triples of LLVM 24.
        assert_eq!(
            order(&[
                ("amdgpu9.08-amd-amdhsa", "", one),
                (AMD, "gfx1100", one),
                (AMD, "gfx90a", one)
            ]),
            [0, 2, 1]
        );
    }

    #[test]
    fn images_for_one_device_keep_their_order() {
        let (one, other): (&[&str], &[&str]) = (&["a"], &["c"]);
        for targets in [
            ["gfx90a:xnack+", "gfx908", "gfx90a"],
            ["gfx9-generic", "gfx906", "gfx908"],
        ] {
            let [x, y, z] = targets;
            assert_eq!(
                order(&[(AMD, x, one), (AMD, y, other), (AMD, z, one)]),
                [0, 1, 2],
                "{targets:?}"
            );
        }
        let nvidia = "nvptx64-nvidia-cuda";
        let cpu = "x86_64-pc-linux-gnu";
        let all = [
            (nvidia, "sm_80", one),
            (cpu, "", one),
            (nvidia, "sm_90", other),
            (nvidia, "sm_86", one),
            (cpu, "", other),
        ];
        assert_eq!(order(&all), [0, 2, 3, 1, 4]);
    }
}
