//! Product names of GPUs, and NVIDIA's compute capabilities, for users who do not know the
//! architecture. Sources: <https://developer.nvidia.com/cuda-gpus> and
//! <https://developer.nvidia.com/cuda-legacy-gpus> for NVIDIA,
//! <https://rocm.docs.amd.com/en/latest/reference/gpu-arch-specs.html> for AMD.

/// Architectures and their products: in lower case, without spaces and dashes, without the names of
/// the maker and the product family.
const PRODUCTS: &[(&str, &[&str])] = &[
    ("sm_37", &["k80"]),
    ("sm_52", &["m40", "m60"]),
    ("sm_60", &["p100"]),
    (
        "sm_61",
        &["p4", "p40", "gtx1050", "gtx1060", "gtx1070", "gtx1080"],
    ),
    ("sm_70", &["v100", "titanv"]),
    ("sm_72", &["agxxavier", "xaviernx"]),
    (
        "sm_75",
        &[
            "t4", "gtx1650", "gtx1660", "rtx2060", "rtx2070", "rtx2080", "titanrtx",
        ],
    ),
    ("sm_80", &["a100", "a30"]),
    (
        "sm_86",
        &[
            "a2", "a10", "a16", "a40", "rtxa6000", "rtx3050", "rtx3060", "rtx3070", "rtx3080",
            "rtx3090",
        ],
    ),
    ("sm_87", &["agxorin", "orinnx", "orinnano"]),
    (
        "sm_89",
        &[
            "l4", "l40", "l40s", "rtx4050", "rtx4060", "rtx4070", "rtx4080", "rtx4090",
        ],
    ),
    ("sm_90", &["h100", "h200", "gh200"]),
    ("sm_100", &["b200", "gb200"]),
    ("sm_103", &["b300", "gb300"]),
    (
        "sm_120",
        &["rtx5050", "rtx5060", "rtx5070", "rtx5080", "rtx5090"],
    ),
    ("sm_121", &["gb10"]),
    ("gfx900", &["mi25", "vega56", "vega64"]),
    ("gfx906", &["mi50", "mi60", "vii"]),
    ("gfx908", &["mi100"]),
    ("gfx90a", &["mi210", "mi250", "mi250x"]),
    ("gfx942", &["mi300a", "mi300x", "mi325x"]),
    ("gfx950", &["mi350x", "mi355x"]),
    (
        "gfx1030",
        &["rx6800", "rx6800xt", "rx6900xt", "rx6950xt", "w6800"],
    ),
    (
        "gfx1100",
        &["rx7900xt", "rx7900xtx", "rx7900gre", "w7800", "w7900"],
    ),
    ("gfx1101", &["rx7700xt", "rx7800xt", "w7700"]),
    ("gfx1102", &["rx7600"]),
    ("gfx1200", &["rx9060xt"]),
    ("gfx1201", &["rx9070", "rx9070xt"]),
];

/// Prefixes for the maker and the product family, which do not affect the architecture.
const MAKERS: [&str; 8] = [
    "nvidia", "amd", "geforce", "tesla", "jetson", "radeon", "instinct", "pro",
];

/// Returns the architecture of `name`: a compute capability such as `8.6`, or a product such as
/// `rtx4090` or `MI300X`.
pub(super) fn architecture(name: &str) -> Option<String> {
    if let Some((major, minor)) = name.split_once('.') {
        let is_number = |text: &str, most: usize| {
            (1..=most).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
        };
        return (is_number(major, 2) && is_number(minor, 1)).then(|| format!("sm_{major}{minor}"));
    }
    let mut product: String = name
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .collect::<String>()
        .to_ascii_lowercase();
    while let Some(rest) = MAKERS.iter().find_map(|maker| product.strip_prefix(maker)) {
        product = rest.to_owned();
    }
    // `Ti` and `Super` variants have the architecture of the plain product.
    let plain = product.trim_end_matches("super").trim_end_matches("ti");
    let has = |products: &[&str]| {
        products.contains(&product.as_str()) || plain != product && products.contains(&plain)
    };
    PRODUCTS
        .iter()
        .find(|(_, products)| has(products))
        .map(|(architecture, _)| (*architecture).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

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
            assert_eq!(architecture(name).as_deref(), expected, "{name}");
        }
    }

    #[test]
    fn every_architecture_is_a_device() {
        for (architecture, products) in PRODUCTS {
            assert!(
                super::super::Wanted::parse(architecture).is_ok() && !products.is_empty(),
                "{architecture}"
            );
            for product in *products {
                let found = PRODUCTS
                    .iter()
                    .filter(|(_, all)| all.contains(product))
                    .count();
                assert_eq!(
                    (found, super::architecture(product).as_deref()),
                    (1, Some(*architecture)),
                    "{product}"
                );
            }
        }
    }
}
