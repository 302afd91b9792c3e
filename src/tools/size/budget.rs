//! Limits that sizes are compared with: `total<850M,gfx942<120M,growth<2%`.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, Result, bail};
use serde::Serialize;

use super::{ImageSize, Sizes};
use crate::model::OffloadKinds;
use crate::target::{Selector, Target};

/// What is limited.
#[derive(Debug, Clone)]
enum What {
    /// All bytes of the files.
    Total,
    /// All bytes, inflated.
    Inflated,
    /// The host's bytes.
    Host,
    /// How many bytes came since what is compared with.
    Growth,
    /// The images of devices.
    Devices(Selector),
}

/// How much is too much.
#[derive(Debug, Clone, Copy)]
enum Limit {
    Bytes(u64),
    /// A share, in hundredths.
    Percent(f64),
}

/// One limit.
#[derive(Debug, Clone)]
pub(crate) struct Budget {
    /// As it was written.
    text: String,
    what: What,
    limit: Limit,
    /// Whether the limit itself is allowed.
    inclusive: bool,
}

/// What came of a limit.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Outcome {
    /// The limit, as it was written.
    pub budget: String,
    /// What it came to: bytes, or hundredths of what was before.
    pub value: f64,
    /// Whether it is kept.
    pub kept: bool,
    /// What broke it, for people; empty where nothing did.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub why: String,
}

impl Budget {
    /// The limits in `text`, with commas between them; `size` reads sizes, and `native` says which devices a machine has that a selector
    /// means.
    ///
    /// # Errors
    /// One is not of the form `NAME<SIZE`, with `total`, `inflated`, `host`, `growth` or devices for the name, or its limit is no
    /// size and, for `growth`, no percentage.
    pub(crate) fn parse(
        text: &str,
        size: impl Fn(&str) -> Result<u64>,
        native: impl Fn(&Selector) -> Result<Vec<Target>>,
    ) -> Result<Vec<Budget>> {
        let all = text.split(',').map(str::trim).filter(|one| !one.is_empty()).map(|one| {
            let mut budget = Budget::one(one, &size)?;
            if let What::Devices(selector) = &mut budget.what
                && selector.is_native()
            {
                let here = native(selector).with_context(|| format!("the budget `{one}`"))?;
                *selector = selector.clone().with_native(&here);
            }
            Ok(budget)
        });
        all.collect()
    }

    fn one(text: &str, size: &impl Fn(&str) -> Result<u64>) -> Result<Budget> {
        let (name, limit) =
            text.split_once('<').with_context(|| format!("`{text}` is no budget: expected something like total<850M"))?;
        let (inclusive, limit) = limit.strip_prefix('=').map_or((false, limit), |limit| (true, limit));
        let what = match name.trim() {
            "total" => What::Total,
            "inflated" => What::Inflated,
            "host" => What::Host,
            "growth" => What::Growth,
            devices => What::Devices(Selector::from_str(devices).with_context(|| format!("the budget `{text}`"))?),
        };
        let limit = match limit.trim().strip_suffix('%') {
            Some(share) if matches!(what, What::Growth) => {
                let share = share.trim().parse().ok().filter(|share: &f64| share.is_finite());
                Limit::Percent(share.with_context(|| format!("the budget `{text}`: `{limit}` is no percentage"))?)
            }
            Some(_) => bail!("the budget `{text}`: only growth can be limited by a percentage"),
            None => Limit::Bytes(size(limit.trim()).with_context(|| format!("the budget `{text}`"))?),
        };
        Ok(Budget { text: text.to_owned(), what, limit, inclusive })
    }

    /// Whether it is about what came since another measurement.
    pub(crate) fn needs_old(&self) -> bool {
        matches!(self.what, What::Growth)
    }

    /// Compares what was measured with the limit; `old` is what it is compared with.
    pub(crate) fn check(&self, sizes: &Sizes, old: Option<&Sizes>) -> Outcome {
        let (bytes, before) = match &self.what {
            What::Total => (sizes.size(), None),
            What::Inflated => (sizes.inflated(), None),
            What::Host => (sizes.host(), None),
            What::Growth => (sizes.size(), old.map(Sizes::size)),
            What::Devices(selector) => (devices(sizes, selector), None),
        };
        let came = before.map_or(bytes as f64, |before| bytes as f64 - before as f64);
        let (value, limit) = match self.limit {
            Limit::Bytes(limit) => (came, limit as f64),
            Limit::Percent(limit) => (came * 100.0 / before.unwrap_or_default().max(1) as f64, limit),
        };
        let kept = value < limit || (self.inclusive && value <= limit);
        let why = if kept { String::new() } else { self.broken(bytes, before, value) };
        Outcome { budget: self.text.clone(), value, kept, why }
    }

    fn broken(&self, bytes: u64, before: Option<u64>, value: f64) -> String {
        match (before, self.limit) {
            (Some(before), Limit::Percent(_)) => {
                format!("{}: it grew by {value:.2} %, from {before} to {bytes} bytes", self.text)
            }
            (Some(before), Limit::Bytes(_)) => format!("{}: it grew by {value:.0} bytes, from {before} to {bytes}", self.text),
            (None, _) => format!("{}: it has {bytes} bytes", self.text),
        }
    }
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn devices(sizes: &Sizes, selector: &Selector) -> u64 {
    let selected = |image: &&ImageSize| {
        let kinds = OffloadKinds::from_names(image.kind.split(','));
        selector.selects(kinds, &Target::new(&image.triple, &image.target))
    };
    sizes.images.iter().filter(selected).map(|image| image.file).sum()
}
