//! Where the host halves of two builds differ, for people: by section and symbol, each with what
//! can be done about it.

use std::fmt;

use super::host_file::{HostFile, Symbol};
use super::place_names::Remedy;
use crate::model::printable_name;
use object::elf;

/// How many differences are told one by one. One change in a source may make a thousand.
const MOST: usize = 20;

/// A difference between the host halves of two builds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Difference {
    /// The section that it is in; empty where it is of the file as a whole.
    pub(crate) section: String,
    /// The symbol that it is in, or is about, and how far into it in bytes.
    pub(crate) symbol: Option<(String, u64)>,
    /// What differs.
    pub(crate) what: String,
    /// What makes both agree, where that is known.
    pub(crate) remedy: Option<&'static str>,
}

impl Difference {
    /// A difference of the file as a whole.
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

/// The symbols of a file by their sections and places, to say where something is.
#[derive(Debug)]
pub(super) struct Names<'d> {
    /// Section and value, in order.
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

    /// The symbol before a place, and how far before: `value` is an offset in a section of an
    /// object, an address in a program.
    pub(super) fn at(&self, section: usize, value: u64) -> Option<(String, u64)> {
        let after = self
            .symbols
            .partition_point(|(of, at, _)| (*of, *at) <= (section, value));
        let (of, at, name) = self.symbols.get(after.checked_sub(1)?)?;
        (*of == section).then(|| (printable_name(name), value - at))
    }
}

/// Differences as they are found.
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

    /// A difference in `section`, of which no symbol is known.
    pub(super) fn in_section(&mut self, section: String, what: String) {
        self.add(Difference {
            section,
            symbol: None,
            what,
            remedy: None,
        });
    }

    /// A difference of the symbol `name` in `section`.
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

    /// How many have been found.
    pub(super) fn count(&self) -> usize {
        self.found.len() + self.more
    }

    /// All of them; how many there are beyond those that are told is the last.
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
