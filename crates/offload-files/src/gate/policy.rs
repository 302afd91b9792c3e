//! Policies as TOML (docs/reference/gate.md lists the keys).

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt;
use std::marker::PhantomData;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use serde::de::{self, IntoDeserializer, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::check::Asked;
use crate::contents::selection::Selection;
use crate::diff::FACTS;
use crate::size::budget::Quantity;
use offld_system::environment::parse_size;
use offload_formats::model::printable;
use offload_formats::target::Selector;

/// The version of the format.
pub(super) const VERSION: u32 = 1;

/// Rules for files.
#[derive(Debug)]
pub struct Policy {
    /// The file with the policy, for messages.
    pub(super) file: String,
    pub(super) rules: Vec<Rule>,
}

/// A rule: the files that it applies to, and the requirements on them.
#[derive(Debug)]
pub(super) struct Rule {
    /// The name for messages: that in the policy, or else the patterns of the files.
    pub(super) name: String,
    /// The files and members that the rule applies to.
    pub(super) selection: Arc<Selection>,
    /// Whether the rule has a pattern for files, so that files without device code count as well.
    pub(super) has_pattern: bool,
    pub(super) checks: Vec<Check>,
    /// Patterns that each select an image of the file.
    pub(super) require: Vec<Selector>,
    /// Patterns that select no image.
    pub(super) forbid: Vec<Selector>,
    /// If not empty, some of these patterns selects each image.
    pub(super) only: Vec<Selector>,
    /// The devices that have to run the file.
    pub(super) runs_on: Vec<Asked>,
    /// The earliest compute capability of NVIDIA, such as 80, that must be able to compile the PTX.
    pub(super) ptx_floor: Option<(u32, u32)>,
    /// The major version of NVIDIA's driver that must be able to load the file.
    pub(super) max_driver: Option<u32>,
    /// The version of ROCm that must be able to load the file.
    pub(super) max_rocm: Option<(u32, u32)>,
    pub(super) max_size: Vec<(Quantity, Limit)>,
    pub(super) max_growth: Vec<Growth>,
}

/// A requirement without a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Check {
    /// The file has device code.
    DeviceCode,
    /// Each registered kernel is in each image, and the rest that `offld check` checks.
    Registered,
    /// Containers that can be compressed are.
    Compressed,
    /// Device images have no debug information.
    NoDebugInfo,
    /// No image occurs twice in the file.
    NoDuplicates,
    /// No kernel and no architecture of the baseline is gone.
    NoLostKernels,
    /// The tags and variant properties of a wheel describe its contents.
    WheelTags,
}

impl Check {
    /// The name in policies and reports.
    pub(super) fn name(self) -> &'static str {
        match self {
            Check::DeviceCode => "device-code",
            Check::Registered => "registered",
            Check::Compressed => "compressed",
            Check::NoDebugInfo => "no-debug-info",
            Check::NoDuplicates => "no-duplicates",
            Check::NoLostKernels => "no-lost-kernels",
            Check::WheelTags => "wheel-tags",
        }
    }
}

/// The greatest permitted value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Limit {
    /// A number of bytes, registers and so on.
    Number(u64),
    /// A share of the value in the baseline, in percent.
    Percent(f64),
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Limit::Number(number) => write!(f, "{number}"),
            Limit::Percent(share) => write!(f, "{share}%"),
        }
    }
}

/// A limit for the growth since the baseline.
#[derive(Debug)]
pub(super) struct Growth {
    /// The key in the policy.
    pub(super) key: String,
    pub(super) of: Growing,
    pub(super) limit: Limit,
}

/// The quantity whose growth is limited.
#[derive(Debug)]
pub(super) enum Growing {
    /// The bytes of all files.
    Bytes(Quantity),
    /// Facts about each kernel, by their names in reports of `offld diff`. For occupancy, the loss is
    /// limited.
    Facts(Vec<&'static str>),
}

/// The text of a policy.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    version: u32,
    #[serde(default, rename = "rule")]
    rules: Vec<WrittenRule>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
struct WrittenRule {
    name: Option<String>,
    #[serde(deserialize_with = "one_or_more")]
    files: Vec<String>,
    #[serde(deserialize_with = "one_or_more")]
    exclude: Vec<String>,
    #[serde(deserialize_with = "one_or_more")]
    checks: Vec<Check>,
    #[serde(deserialize_with = "one_or_more")]
    require: Vec<String>,
    #[serde(deserialize_with = "one_or_more")]
    forbid: Vec<String>,
    #[serde(deserialize_with = "one_or_more")]
    only: Vec<String>,
    #[serde(deserialize_with = "one_or_more")]
    runs_on: Vec<String>,
    ptx_floor: Option<String>,
    max_driver: Option<u32>,
    max_rocm: Option<String>,
    max_size: BTreeMap<String, WrittenLimit>,
    max_growth: BTreeMap<String, WrittenLimit>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum WrittenLimit {
    Number(u64),
    Text(String),
}

/// Reads a value or a list of values.
fn one_or_more<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    struct OneOrMore<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for OneOrMore<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a string or a list of strings")
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<Vec<T>, E> {
            Ok(vec![T::deserialize(text.into_deserializer())?])
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
            let mut all = Vec::new();
            while let Some(one) = list.next_element()? {
                all.push(one);
            }
            Ok(all)
        }
    }

    deserializer.deserialize_any(OneOrMore(PhantomData))
}

impl Policy {
    /// Reads the policy in the file at `path`.
    ///
    /// # Errors
    /// The file cannot be read, is not TOML, or has an unknown key or an invalid value.
    pub fn read(path: &Path) -> Result<Policy> {
        let file = printable(&path.display().to_string()).into_owned();
        let text = std::fs::read_to_string(path).with_context(|| format!("`{file}`"))?;
        Policy::parse(file, &text)
    }

    /// Parses the text of a policy, which is in `file`.
    pub(super) fn parse(file: String, text: &str) -> Result<Policy> {
        let written: Written =
            toml::from_str(text).map_err(|error| anyhow::anyhow!("`{file}`: {error}"))?;
        if written.version != VERSION {
            bail!(
                "`{file}`: policy of version {}, but this offld reads version {VERSION}",
                written.version
            );
        }
        if written.rules.is_empty() {
            bail!("`{file}`: no [[rule]]");
        }
        let rules = written.rules.into_iter().enumerate().map(|(index, rule)| {
            rule.read()
                .with_context(|| format!("`{file}`: rule {}", index + 1))
        });
        Ok(Policy {
            rules: rules.collect::<Result<_>>()?,
            file,
        })
    }

    /// Whether a rule compares with a baseline.
    pub fn needs_baseline(&self) -> bool {
        self.rules.iter().any(Rule::needs_baseline)
    }
}

impl Rule {
    pub(super) fn needs_baseline(&self) -> bool {
        self.has(Check::NoLostKernels) || !self.max_growth.is_empty()
    }

    /// Whether the baseline's kernels are needed.
    pub(super) fn compares_kernels(&self) -> bool {
        let is_fact = |growth: &Growth| matches!(growth.of, Growing::Facts(_));
        self.has(Check::NoLostKernels) || self.max_growth.iter().any(is_fact)
    }

    /// Whether the baseline's sizes are needed.
    pub(super) fn compares_sizes(&self) -> bool {
        let is_size = |growth: &Growth| matches!(growth.of, Growing::Bytes(_));
        self.max_growth.iter().any(is_size)
    }

    pub(super) fn has(&self, check: Check) -> bool {
        self.checks.contains(&check)
    }
}

impl WrittenRule {
    fn read(self) -> Result<Rule> {
        let selectors = |key: &str, texts: &[String]| {
            let selector = |text: &String| Selector::from_str(text).with_context(|| key.to_owned());
            texts.iter().map(selector).collect::<Result<Vec<_>>>()
        };
        let name = self.name.unwrap_or_else(|| match self.files.as_slice() {
            [] => "all files".to_owned(),
            files => files.join(", "),
        });
        let rule = Rule {
            name: printable(&name).into_owned(),
            selection: Arc::new(Selection::of_options(
                ["files", "exclude"],
                &self.files,
                &self.exclude,
            )?),
            has_pattern: !self.files.is_empty(),
            require: selectors("require", &self.require)?,
            forbid: selectors("forbid", &self.forbid)?,
            only: selectors("only", &self.only)?,
            runs_on: self
                .runs_on
                .iter()
                .map(|text| Asked::parse(text).context("runs-on"))
                .collect::<Result<_>>()?,
            ptx_floor: self
                .ptx_floor
                .map(|text| {
                    capability(&text).with_context(|| {
                        format!("ptx-floor: `{}` is not like compute_80", printable(&text))
                    })
                })
                .transpose()?,
            max_driver: self.max_driver,
            max_rocm: self
                .max_rocm
                .map(|text| {
                    version(&text).with_context(|| {
                        format!("max-rocm: `{}` is not like 6.4", printable(&text))
                    })
                })
                .transpose()?,
            max_size: self
                .max_size
                .into_iter()
                .map(|(key, limit)| {
                    let limit = limit.read().with_context(|| in_table("max-size", &key))?;
                    if matches!(limit, Limit::Percent(_)) {
                        bail!(
                            "{}: only growth has limits in percent",
                            in_table("max-size", &key)
                        );
                    }
                    let quantity =
                        Quantity::parse(&key).with_context(|| in_table("max-size", &key))?;
                    Ok((quantity, limit))
                })
                .collect::<Result<_>>()?,
            max_growth: self
                .max_growth
                .into_iter()
                .map(|(key, limit)| growth(key, limit))
                .collect::<Result<_>>()?,
            checks: self.checks,
        };
        let is_empty = rule.checks.is_empty()
            && rule.require.is_empty()
            && rule.forbid.is_empty()
            && rule.only.is_empty()
            && rule.runs_on.is_empty()
            && rule.ptx_floor.is_none()
            && rule.max_driver.is_none()
            && rule.max_rocm.is_none()
            && rule.max_size.is_empty()
            && rule.max_growth.is_empty();
        if is_empty {
            bail!("the rule requires nothing");
        }
        Ok(rule)
    }
}

/// A key of a table, for messages: `max-size.total`.
fn in_table(table: &str, key: &str) -> String {
    format!("{table}.{}", printable(key))
}

impl WrittenLimit {
    fn read(self) -> Result<Limit> {
        let text = match self {
            WrittenLimit::Number(number) => return Ok(Limit::Number(number)),
            WrittenLimit::Text(text) => text,
        };
        let Some(share) = text.trim().strip_suffix('%') else {
            return Ok(Limit::Number(parse_size(OsStr::new(text.trim()))?));
        };
        let share: Option<f64> = share.trim().parse().ok();
        let share = share.filter(|share| share.is_finite() && *share >= 0.0);
        let share = share.with_context(|| format!("`{}` is not a percentage", printable(&text)))?;
        Ok(Limit::Percent(share))
    }
}

fn growth(key: String, limit: WrittenLimit) -> Result<Growth> {
    let context = || in_table("max-growth", &key);
    let limit = limit.read().with_context(context)?;
    let fact = key.replace('-', "_");
    let of = match key.as_str() {
        // The registers of NVIDIA's kernels, and those of AMD's that limit the occupancy most.
        "registers" => Growing::Facts(vec!["registers", "vgprs", "agprs"]),
        // The stack of a kernel has its spilled registers.
        "spills" => Growing::Facts(vec!["spilled_vgprs", "spilled_sgprs", "scratch"]),
        _ => match FACTS.into_iter().find(|known| *known == fact) {
            Some(known) => Growing::Facts(vec![known]),
            None => Growing::Bytes(Quantity::parse(&key).with_context(context)?),
        },
    };
    Ok(Growth { key, of, limit })
}

/// The compute capability in `compute_80`.
pub(super) fn capability(text: &str) -> Option<(u32, u32)> {
    let number = text.strip_prefix("compute_").or(text.strip_prefix("sm_"))?;
    let (major, minor) = number.split_at_checked(number.len().checked_sub(1)?)?;
    Some((major.parse::<u16>().ok()?.into(), minor.parse().ok()?))
}

/// The numbers in `6.4`; in `7`, the second is 0.
fn version(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once('.').unwrap_or((text, "0"));
    Some((major.parse().ok()?, minor.parse().ok()?))
}
