//! Differences between the host halves of two builds, for messages: by section and symbol, with a
//! remedy.

use std::fmt;

use super::host_file::{HostFile, Symbol};
use super::place_names::Remedy;
use crate::model::printable_name;
use object::elf;

/// Limit on reported differences. One change in a source may cause a thousand.
const MOST: usize = 20;

/// A difference between the host halves of two builds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Difference {
    /// The section; empty for a difference of the whole file.
    pub(crate) section: String,
    /// The symbol, and the offset in it in bytes.
    pub(crate) symbol: Option<(String, u64)>,
    /// The description.
    pub(crate) what: String,
    /// The change that makes both builds match, if known.
    pub(crate) remedy: Option<&'static str>,
}

impl Difference {
    /// A difference of the whole file.
    pub(super) fn of_file(what: String) -> Self {
        Difference {
            section: String::new(),
            symbol: None,
            what,
            remedy: None,
        }
    }
}

/// `.text: main+0x12: …`
impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.section.is_empty() {
            write!(f, "{}: ", self.section)?;
        }
        match &self.symbol {
            Some((name, 0)) if !name.is_empty() => write!(f, "{name}: ")?,
            Some((name, within)) => write!(f, "{name}+{within:#x}: ")?,
            None => {}
        }
        f.write_str(&self.what)?;
        if let Some(remedy) = self.remedy {
            write!(f, " ({remedy})")?;
        }
        Ok(())
    }
}

/// The symbols of a file, sorted by section and address, to name locations.
#[derive(Debug)]
pub(super) struct Names<'d> {
    /// Section, value and name, sorted.
    symbols: Vec<(usize, u64, &'d [u8])>,
}

impl<'d> Names<'d> {
    pub(super) fn of(file: &HostFile<'d>) -> Self {
        let named = |symbol: &&Symbol<'_>| {
            !symbol.name.is_empty()
                && !matches!(
                    symbol.kind(),
                    elf::STT_SECTION | elf::STT_FILE | elf::STT_TLS
                )
        };
        let all = file
            .symbols
            .iter()
            .chain(&file.dynamic_symbols)
            .filter(named);
        let mut symbols: Vec<_> = all
            .filter_map(|symbol| Some((symbol.section?, symbol.value, symbol.name)))
            .collect();
        symbols.sort();
        Names { symbols }
    }

    /// The last symbol at or before a location, and the distance from it. `value` is an offset in a
    /// section of an object, or an address in a program.
    pub(super) fn at(&self, section: usize, value: u64) -> Option<(String, u64)> {
        let after = self
            .symbols
            .partition_point(|(of, at, _)| (*of, *at) <= (section, value));
        let (of, at, name) = self.symbols.get(after.checked_sub(1)?)?;
        (*of == section).then(|| (printable_name(name), value - at))
    }
}

/// Collects differences.
#[derive(Debug, Default)]
pub(super) struct Differences {
    found: Vec<Difference>,
    more: usize,
}

impl Differences {
    pub(super) fn add(&mut self, difference: Difference) {
        if self.found.len() < MOST {
            self.found.push(difference)
        } else {
            self.more += 1
        }
    }

    /// Adds a difference in `section` without a symbol.
    pub(super) fn in_section(&mut self, section: String, what: String) {
        self.add(Difference {
            section,
            symbol: None,
            what,
            remedy: None,
        });
    }

    /// Adds a difference of the symbol `name` in `section`.
    pub(super) fn of_symbol(
        &mut self,
        section: String,
        name: &[u8],
        what: String,
        remedy: Option<Remedy>,
    ) {
        self.add(Difference {
            section,
            symbol: Some((printable_name(name), 0)),
            what,
            remedy,
        });
    }

    /// Number of differences, reported or not.
    pub(super) fn count(&self) -> usize {
        self.found.len() + self.more
    }

    /// The reported differences. The last one counts the others, if any.
    pub(super) fn finish(mut self) -> Vec<Difference> {
        if self.more > 0 {
            self.found.push(Difference::of_file(format!(
                "and {} more differences",
                self.more
            )));
        }
        self.found
    }
}
