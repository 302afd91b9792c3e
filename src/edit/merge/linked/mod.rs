//! Compares the host halves of two programs or shared libraries. Images of different sizes move
//! what is behind them, and with it every address and distance in the host's code and data, so
//! bytes that differ are asked what they are: `code` and `aarch64` know where processors keep
//! distances, `data` where compilers keep pointers, `tables` compares what the dynamic loader
//! reads. What leads to the same byte of the same section in both (`moves`) is no difference.

mod aarch64;
mod code;
mod data;
mod moves;
mod tables;

use std::collections::HashSet;

use anyhow::Result;
use object::elf;

use super::ParsedHost;
use super::difference::{Difference, Differences, Names};
use super::strings;
use crate::formats::elf::raw::Class;
use moves::{Kind, Moves, Stretch, shown};

/// How many differences of one stretch are told.
const MOST_OF_STRETCH: usize = 4;

/// Two programs, and what has moved between them.
struct Compared<'c, 'd> {
    moves: &'c Moves<'d>,
    machine: elf::Machine,
    class: Class,
    /// Whether they are linked for fixed addresses.
    is_fixed: bool,
    /// The ends of thread-local memory in both.
    tls_ends: Option<[u64; 2]>,
    /// The addresses of the first program that the dynamic loader fills in.
    filled: HashSet<u64>,
    names: Names<'d>,
}

/// Adds the differences of two programs or shared libraries.
///
/// # Errors
/// Damaged relocations.
pub(super) fn compare(
    one: &ParsedHost<'_>,
    other: &ParsedHost<'_>,
    found: &mut Differences,
) -> Result<()> {
    let moves = Moves::of(one, other, found);
    if found.count() > 0 {
        // Without knowing what stands where, nothing could be said of the rest.
        return Ok(());
    }
    let filled = tables::relocations(&moves, one, other, found)?;
    let compared = Compared {
        moves: &moves,
        machine: one.file.header.machine,
        class: one.file.class,
        is_fixed: one.file.is_fixed(),
        tls_ends: one
            .file
            .tls_end
            .zip(other.file.tls_end)
            .map(|(one, other)| [one, other]),
        filled,
        names: Names::of(&one.file),
    };
    for stretch in &moves.stretches {
        match (stretch.kind, compared.machine) {
            (Kind::Code, elf::EM_AARCH64) => aarch64::compare(&compared, stretch, found),
            (Kind::Code | Kind::Data | Kind::Frames, _) => compared.bytes(stretch, found),
            (Kind::Table | Kind::Empty | Kind::Device, _) => {}
        }
    }
    tables::dynamic(&moves, one, other, found);
    tables::symbols(&moves, one, other, found);
    let entries = [one.file.header.entry, other.file.header.entry];
    if !matches!(entries, [0, 0]) && !moves.is_same(entries[0], entries[1]) {
        found.add(Difference::of_file("the entry points differ".to_owned()));
    }
    Ok(())
}

impl Compared<'_, '_> {
    /// Compares the bytes of a stretch.
    fn bytes(&self, stretch: &Stretch<'_>, found: &mut Differences) {
        let [one, other] = stretch.bytes;
        // Everything before this place is explained or told.
        let mut done = 0;
        let mut told = 0;
        while let Some(at) = next_difference(one, other, done) {
            let explained = match (stretch.kind, self.machine) {
                (Kind::Code, elf::EM_X86_64) => code::explained(self, stretch, at, done),
                (Kind::Code, _) => None,
                _ => data::explained(self, stretch, at, done),
            };
            done = explained.unwrap_or_else(|| {
                self.add(stretch, at, found);
                told += 1;
                at + 16
            });
            if told == MOST_OF_STRETCH {
                return;
            }
        }
    }

    /// Adds a difference at a place of a stretch.
    fn add(&self, stretch: &Stretch<'_>, at: usize, found: &mut Differences) {
        let [one, other] = stretch.bytes;
        let remedy = if stretch.kind == Kind::Data {
            strings::remedy_at(one, at, other, at)
        } else {
            None
        };
        let is_known = matches!(self.machine, elf::EM_X86_64 | elf::EM_AARCH64);
        let what = match stretch.kind {
            Kind::Code if !is_known => {
                "the code differs; moved addresses are recognized only in x86-64 and AArch64 code"
            }
            Kind::Code => "the code differs",
            _ if remedy.is_some() => "names differ",
            _ => "the data differs",
        };
        let address = stretch.one.wrapping_add(at as u64);
        let symbol = self
            .names
            .at(stretch.section, address)
            .or(Some((String::new(), at as u64)));
        found.add(Difference {
            section: shown(stretch),
            symbol,
            what: what.to_owned(),
            remedy,
        });
    }

    /// The number of `width` bytes (4 or 8) at a place of both programs.
    fn numbers(&self, stretch: &Stretch<'_>, at: usize, width: usize) -> Option<[u64; 2]> {
        let number = |bytes: &[u8]| self.class.number(bytes.get(at..)?, width);
        let [one, other] = stretch.bytes;
        Some([number(one)?, number(other)?])
    }
}

/// The first place from `from` on where two texts of one length differ.
fn next_difference(one: &[u8], other: &[u8], from: usize) -> Option<usize> {
    const CHUNK: usize = 256;
    let (one, other) = (one.get(from..)?, other.get(from..)?);
    let mut chunks = one.chunks(CHUNK).zip(other.chunks(CHUNK));
    let chunk = chunks.position(|(one, other)| one != other)? * CHUNK;
    let within = one
        .get(chunk..)?
        .iter()
        .zip(other.get(chunk..)?)
        .position(|(one, other)| one != other)?;
    Some(from + chunk + within)
}

/// A distance of 32 bits as an address counts it.
fn distance(number: u64) -> u64 {
    i64::from(number as u32 as i32) as u64
}
