//! Limits for sizes: `total<850M,gfx942<120M,growth<2%`.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, Result, bail};
use serde::Serialize;

use super::{ImageSize, Sizes};
use offld_system::table::{Style, size};
use offload_formats::target::{Selector, Target};

/// The names of limits, in addition to devices.
const NAMES: [&str; 4] = ["total", "inflated", "host", "growth"];

/// The quantity that a limit applies to.
#[derive(Debug, Clone)]
pub(crate) enum Quantity {
    /// All bytes of the files.
    Total,
    /// All bytes after decompression.
    Inflated,
    /// The bytes of the host.
    Host,
    /// The growth in bytes since the old measurement.
    Growth,
    /// The images of devices.
    Devices(Selector),
}

impl Quantity {
    /// The quantity of this name: `total`, `inflated`, `host`, or a device.
    pub(crate) fn parse(name: &str) -> Result<Quantity> {
        Ok(match name {
            "total" => Quantity::Total,
            "inflated" => Quantity::Inflated,
            "host" => Quantity::Host,
            devices => Quantity::Devices(Selector::from_str(devices)?),
        })
    }

    /// Whether it is the size of images for devices.
    pub(crate) fn is_of_devices(&self) -> bool {
        matches!(self, Quantity::Devices(_))
    }

    /// Its bytes in `sizes`. For growth, these are all bytes.
    pub(crate) fn bytes(&self, sizes: &Sizes) -> u64 {
        match self {
            Quantity::Total | Quantity::Growth => sizes.size(),
            Quantity::Inflated => sizes.inflated(),
            Quantity::Host => sizes.host(),
            Quantity::Devices(selector) => selected(sizes, selector).map(|image| image.file).sum(),
        }
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Quantity::Total => f.write_str("total"),
            Quantity::Inflated => f.write_str("inflated"),
            Quantity::Host => f.write_str("host"),
            Quantity::Growth => f.write_str("growth"),
            Quantity::Devices(selector) => write!(f, "{selector}"),
        }
    }
}

/// The value of a limit.
#[derive(Debug, Clone, Copy)]
enum Limit {
    Bytes(u64),
    /// A share in percent.
    Percent(f64),
}

/// One limit.
#[derive(Debug, Clone)]
pub struct Budget {
    /// The limit as the user wrote it.
    text: String,
    what: Quantity,
    limit: Limit,
    /// Whether the limit itself is allowed.
    inclusive: bool,
}

/// The result of checking a limit.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    /// The limit as the user wrote it.
    pub budget: String,
    /// The measured value: bytes, or percent of the old size.
    pub value: f64,
    /// Whether the value is within the limit.
    pub kept: bool,
    /// The excess, as a message; empty if the value is within the limit.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub why: String,
}

impl Budget {
    /// Parses the limits in `text`, which are separated by commas. `size` parses sizes, and
    /// `native` returns the devices of this machine that a selector means.
    ///
    /// # Errors
    /// A limit is not of the form `NAME<SIZE`, in which the name is `total`, `inflated`, `host`,
    /// `growth` or devices. Or its value is not a size, or for `growth` not a percentage either.
    pub fn parse(
        text: &str,
        size: impl Fn(&str) -> Result<u64>,
        native: impl Fn(&Selector) -> Result<Vec<Target>>,
    ) -> Result<Vec<Budget>> {
        let all = text
            .split(',')
            .map(str::trim)
            .filter(|one| !one.is_empty())
            .map(|one| {
                let mut budget = Budget::parse_one(one, &size)?;
                if let Quantity::Devices(selector) = &mut budget.what
                    && selector.is_native()
                {
                    let local = native(selector).with_context(|| format!("the budget `{one}`"))?;
                    *selector = selector.clone().with_native(&local);
                }
                Ok(budget)
            });
        all.collect()
    }

    fn parse_one(text: &str, size: &impl Fn(&str) -> Result<u64>) -> Result<Budget> {
        let (name, limit) = text.split_once('<').with_context(|| {
            format!("invalid budget `{text}`: expected NAME<SIZE, such as total<850M")
        })?;
        let (inclusive, limit) = limit
            .strip_prefix('=')
            .map_or((false, limit), |limit| (true, limit));
        let what = match name.trim() {
            "growth" => Quantity::Growth,
            name => Quantity::parse(name).with_context(|| format!("the budget `{text}`"))?,
        };
        let limit = match limit.trim().strip_suffix('%') {
            Some(share) if matches!(what, Quantity::Growth) => {
                let share = share
                    .trim()
                    .parse()
                    .ok()
                    .filter(|share: &f64| share.is_finite());
                Limit::Percent(share.with_context(|| {
                    format!("invalid budget `{text}`: `{limit}` is not a percentage")
                })?)
            }
            Some(_) => bail!("invalid budget `{text}`: only growth can have a limit in percent"),
            None => {
                Limit::Bytes(size(limit.trim()).with_context(|| format!("the budget `{text}`"))?)
            }
        };
        Ok(Budget {
            text: text.to_owned(),
            what,
            limit,
            inclusive,
        })
    }

    /// Whether the limit needs an old measurement to compare with.
    pub fn needs_old(&self) -> bool {
        matches!(self.what, Quantity::Growth)
    }

    /// Returns an error message if the limit cannot be exceeded, because it names devices for which
    /// neither `sizes` nor `old` has an image. None for every other limit.
    pub fn unmatched(&self, sizes: &Sizes, old: Option<&Sizes>) -> Option<String> {
        let Quantity::Devices(selector) = &self.what else {
            return None;
        };
        if std::iter::once(sizes)
            .chain(old)
            .any(|sizes| selected(sizes, selector).next().is_some())
        {
            return None;
        }
        let name = selector.to_string();
        let near = NAMES
            .into_iter()
            .map(|known| (strsim::damerau_levenshtein(&name, known), known))
            .min();
        let hint = near
            .filter(|(distance, _)| *distance <= 2)
            .map_or(String::new(), |(_, known)| {
                format!(" (did you mean `{known}`?)")
            });
        let known = NAMES.join(", ");
        Some(format!(
            "no image matches `{name}` in the budget `{self}`: expected {known} or a device such as sm_90{hint}"
        ))
    }

    /// Compares `sizes` with the limit; `old` is the old measurement for growth. Sizes in the
    /// message have the format `style`.
    pub fn check(&self, sizes: &Sizes, old: Option<&Sizes>, style: Style) -> Outcome {
        let bytes = self.what.bytes(sizes);
        let before = match &self.what {
            Quantity::Growth => old.map(Sizes::size),
            _ => None,
        };
        let measured = before.map_or(bytes as f64, |before| bytes as f64 - before as f64);
        let (value, limit) = match self.limit {
            Limit::Bytes(limit) => (measured, limit as f64),
            Limit::Percent(limit) => (
                measured * 100.0 / before.unwrap_or_default().max(1) as f64,
                limit,
            ),
        };
        let kept = value < limit || (self.inclusive && value <= limit);
        let why = if kept {
            String::new()
        } else {
            self.excess_text(bytes, before, value, style)
        };
        Outcome {
            budget: self.text.clone(),
            value,
            kept,
            why,
        }
    }

    /// The message about the excess: `total is 57M, limit 50M (6.6M too much)`.
    fn excess_text(&self, bytes: u64, before: Option<u64>, value: f64, style: Style) -> String {
        let bytes_of = |bytes: f64| size(bytes.round() as u64, style);
        let name = self.text.split('<').next().unwrap_or_default().trim();
        let (shown, limit, excess) = match self.limit {
            Limit::Percent(limit) => (
                format!("{value:.2}%"),
                format!("{limit}%"),
                format!("{:.2}%", value - limit),
            ),
            Limit::Bytes(limit) => (
                bytes_of(value),
                bytes_of(limit as f64),
                bytes_of(value - limit as f64),
            ),
        };
        let from = before.map_or(String::new(), |before| {
            format!(", from {} to {}", size(before, style), size(bytes, style))
        });
        let is_limit = matches!(self.limit, Limit::Bytes(limit) if value <= limit as f64);
        let excess = if is_limit {
            "must be less".to_owned()
        } else {
            format!("{excess} too much")
        };
        format!("{name} is {shown}{from}, limit {limit} ({excess})")
    }
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn selected<'s>(sizes: &'s Sizes, selector: &Selector) -> impl Iterator<Item = &'s ImageSize> {
    sizes
        .images
        .iter()
        .filter(|image| image.is_selected(selector))
}
