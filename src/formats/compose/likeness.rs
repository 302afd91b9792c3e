//! The order of images in which those that are alike stand next to each other: a compressor stores what they share once, as far back as
//! its window reaches.

use crate::formats::gpu::{AmdArch, TargetId};

/// What tells whether an image is like another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Likeness<'a> {
    /// Its triple.
    pub triple: &'a str,
    /// Its processor or target id; empty if there is none.
    pub target: &'a str,
    /// The names of its kernels, in any order.
    pub kernels: &'a [&'a str],
}

/// The places of `images` in an order in which those of one triple and family of processors stand together, and among these those with
/// the same kernels. Families, and images in one, come in the order in which they are given.
///
/// A runtime takes the first image that fits, so images of which one device might take either keep their order: they are of one family,
/// and kernels count only where all images of the family are for processors of their own.
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
    families.into_iter().flat_map(|(_, places)| by_kernels(images, places)).collect()
}

/// What images have in common that are compiled for much the same instructions. All of NVIDIA's are one family: code for one of them may
/// run on many.
fn family(image: &Likeness<'_>) -> String {
    let of_name = || AmdArch::of_processor(image.target);
    let of_triple = || AmdArch::of_triple(image.triple).filter(|arch| !arch.is_any());
    match of_name().or_else(of_triple) {
        Some(arch) => format!("amdgcn {}", arch.major()),
        None => image.triple.to_owned(),
    }
}

/// The images at `places`, which are of one family, with those together that have the same kernels.
fn by_kernels(images: &[Likeness<'_>], places: Vec<usize>) -> Vec<usize> {
    let of = |place: &usize| images.get(*place);
    let processors: Vec<&str> = places.iter().filter_map(of).map(processor).collect();
    let apart =
        processors.iter().enumerate().all(|(at, name)| is_one(name) && !processors.iter().take(at).any(|other| other == name));
    if !apart {
        return places;
    }
    let kernels = |place: &usize| {
        let mut names = of(place).map_or_else(Vec::new, |image| image.kernels.to_vec());
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

/// Whether a name is that of one AMD processor: no other device takes its images.
fn is_one(processor: &str) -> bool {
    processor.starts_with("gfx") && !processor.ends_with("-generic")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(images: &[(&str, &str, &[&str])]) -> Vec<usize> {
        let all: Vec<_> = images.iter().map(|(triple, target, kernels)| Likeness { triple, target, kernels }).collect();
        by_likeness(&all)
    }

    const AMD: &str = "amdgcn-amd-amdhsa";

    #[test]
    fn families_and_kernels_stand_together() {
        let (one, other): (&[&str], &[&str]) = (&["a", "b"], &["c"]);
        let twisted: &[&str] = &["b", "a", "b"];
        assert_eq!(
            order(&[(AMD, "gfx906", one), (AMD, "gfx908", other), (AMD, "gfx1030", one), (AMD, "gfx90a", twisted)]),
            [0, 3, 1, 2]
        );
        assert_eq!(order(&[]), [0; 0]);
        // LLVM 24's triples.
        assert_eq!(order(&[("amdgpu9.08-amd-amdhsa", "", one), (AMD, "gfx1100", one), (AMD, "gfx90a", one)]), [0, 2, 1]);
    }

    #[test]
    fn what_one_device_may_take_keeps_its_order() {
        let (one, other): (&[&str], &[&str]) = (&["a"], &["c"]);
        for targets in [["gfx90a:xnack+", "gfx908", "gfx90a"], ["gfx9-generic", "gfx906", "gfx908"]] {
            let [x, y, z] = targets;
            assert_eq!(order(&[(AMD, x, one), (AMD, y, other), (AMD, z, one)]), [0, 1, 2], "{targets:?}");
        }
        let nvidia = "nvptx64-nvidia-cuda";
        let cpu = "x86_64-pc-linux-gnu";
        let all = [(nvidia, "sm_80", one), (cpu, "", one), (nvidia, "sm_90", other), (nvidia, "sm_86", one), (cpu, "", other)];
        assert_eq!(order(&all), [0, 2, 3, 1, 4]);
    }
}
