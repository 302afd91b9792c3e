//! Sizes in options and environment variables.

use std::ffi::OsStr;

use anyhow::{Context, Result, bail};

/// Parses a size in bytes. Suffixes: `K`, `M`, `G` or `T` for powers of 1024 (`5G`, `1.5g`,
/// `2GiB`); `KB`, `MB`, `GB` or `TB` for powers of 1000.
///
/// # Errors
/// Any other text is an error.
pub(crate) fn parse_size(text: &OsStr) -> Result<u64> {
    let invalid = || {
        format!(
            "invalid size '{}': expected bytes, or a number with K, M, G, T",
            text.display()
        )
    };
    let all = text.to_str().with_context(invalid)?.trim();
    let digits = all
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(all.len());
    let (number, unit) = all.split_at_checked(digits).with_context(invalid)?;
    let unit: u64 = match unit.to_ascii_uppercase().as_str() {
        "" | "B" => 1,
        "K" | "KIB" => 1 << 10,
        "M" | "MIB" => 1 << 20,
        "G" | "GIB" => 1 << 30,
        "T" | "TIB" => 1 << 40,
        "KB" => 1000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "TB" => 1_000_000_000_000,
        _ => bail!(invalid()),
    };
    let bytes = match number.parse::<u64>() {
        Ok(number) => number.checked_mul(unit),
        Err(_) => {
            let bytes = number
                .parse::<f64>()
                .ok()
                .map(|number| number * unit as f64);
            bytes
                .filter(|bytes| *bytes >= 0.0 && *bytes < u64::MAX as f64)
                .map(|bytes| bytes as u64)
        }
    };
    bytes.with_context(invalid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        let size = |text: &str| parse_size(OsStr::new(text)).ok();
        assert_eq!(size("5G"), Some(5 << 30));
        assert_eq!(
            (size("500MB"), size("500M"), size("1.5gb")),
            (Some(500_000_000), Some(500 << 20), Some(1_500_000_000))
        );
        assert_eq!(size("1.5k"), Some(1536));
        assert_eq!(
            (size("2TiB"), size("7"), size("7b")),
            (Some(2 << 40), Some(7), Some(7))
        );
        assert_eq!(size("18446744073709551615"), Some(u64::MAX));
        for wrong in [
            "",
            "G",
            "5X",
            "-5",
            "5 G",
            "1.2.3",
            "99999999999T",
            "18446744073709551616",
            "1e3",
            "nan",
            ".",
        ] {
            assert_eq!(size(wrong), None, "{wrong}");
        }
    }
}
