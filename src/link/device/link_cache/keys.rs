//! Cache key of an image: digests of its device code, its linker and the environment. A record of
//! the parts lets the next cache miss report what has changed.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use super::linker_args::LinkerArgs;
use super::linker_command::LinkerCommand;
use super::{DeviceCache, LinkQuery, Tool};
use crate::link::inputs::worth_threads;
use crate::link::select::DeviceJob;
use offld_system::environment;
use offld_system::store::{Digest, Key, KeyBuilder};
use offld_system::threads;

impl DeviceCache<'_> {
    pub(super) fn key(
        &self,
        linker_command: &LinkerCommand,
        tools: &[Tool],
        inputs: &[Digest],
    ) -> Key {
        let mut key = self.cache.shared_key("image 5");
        key.add(self.environment.bytes())
            .add((tools.len() as u64).to_le_bytes());
        tools.iter().for_each(|tool| {
            key.add(tool.digest.bytes());
        });
        // One executable can be several linkers, depending on the name it is called by.
        key.add(
            linker_command
                .program
                .file_name()
                .unwrap_or_default()
                .as_encoded_bytes(),
        );
        key.add((linker_command.args.len() as u64).to_le_bytes());
        linker_command.args.iter().for_each(|arg| {
            key.add(arg);
        });
        inputs.iter().for_each(|input| {
            key.add(input.bytes());
        });
        key.key()
    }

    pub(super) fn key_parts(
        &self,
        query: &LinkQuery<'_>,
        linker_command: &LinkerCommand,
        linker_args: &LinkerArgs,
        tools: &[Tool],
        inputs: &[Digest],
    ) -> KeyParts {
        let named = query.job.inputs.iter().zip(inputs);
        let mut key_parts: KeyParts = named
            .map(|(input, digest)| {
                (
                    format!("the device code of {}", input.origin),
                    digest.to_string(),
                )
            })
            .collect();
        let programs = std::iter::once(&linker_command.program).chain(&linker_args.tools);
        for (program, tool) in programs.zip(tools) {
            key_parts.insert(
                format!("the linker {}", program.display()),
                tool.digest.to_string(),
            );
        }
        let mut command = KeyBuilder::default();
        linker_command.args.iter().for_each(|arg| {
            command.add(arg);
        });
        key_parts.insert(
            "the linker command line".to_owned(),
            command.digest().to_string(),
        );
        key_parts.insert("the environment".to_owned(), self.environment.to_string());
        if let Some(trust) = self.cache.trust() {
            key_parts.insert(
                "the signing key (OFFLD_CACHE_KEY)".to_owned(),
                trust.to_string(),
            );
        }
        key_parts
    }
}

/// Computes the digests of a job's device code, in order. Large inputs use all threads.
pub(super) fn of_device_code(job: &DeviceJob<'_>) -> Vec<Digest> {
    let known = job.inputs.iter().map(|input| input.bytes.known_digest());
    let known: Vec<Option<&Digest>> = known.collect();
    let unknown = job
        .inputs
        .iter()
        .zip(&known)
        .filter(|(_, known)| known.is_none());
    let contents: Vec<&[u8]> = unknown.map(|(input, _)| &*input.bytes).collect();
    let read = if worth_threads(contents.iter().map(|bytes| bytes.len())) {
        threads::in_parallel(|| Digest::of_all(&contents))
    } else {
        contents.into_iter().map(Digest::of).collect()
    };
    let mut read = read.into_iter();
    known
        .into_iter()
        .filter_map(|known| known.cloned().or_else(|| read.next()))
        .collect()
}

/// Computes the digest of the environment variables that compilers and linkers read.
pub(in crate::link::device) fn of_environment() -> Digest {
    let mut read: Vec<(OsString, OsString)> = std::env::vars_os()
        .filter(|(name, _)| {
            let name = name.to_string_lossy();
            environment::TOOL_VARIABLES.contains(&name.as_ref())
                || environment::TOOL_PREFIXES
                    .iter()
                    .any(|prefix| name.starts_with(prefix))
        })
        .collect();
    read.sort();
    let mut key = KeyBuilder::default();
    for (name, value) in read {
        key.add(name.as_encoded_bytes())
            .add(value.as_encoded_bytes());
    }
    key.digest()
}

/// Maximum number of changes to name. Further ones are only counted.
const MAX_NAMED: usize = 3;

/// The parts of a cache key: digests by their description in messages.
pub(super) type KeyParts = BTreeMap<String, String>;

/// The key of the record for the `target` image of the program `output`.
pub(super) fn history_key(output: &Path, target: &str) -> Key {
    let output = std::path::absolute(output).unwrap_or_else(|_| output.to_owned());
    let mut key = KeyBuilder::default();
    key.add("last 2")
        .add(output.as_os_str().as_encoded_bytes())
        .add(target);
    key.key()
}

/// Describes the difference between the last link and `now`.
pub(super) fn difference(last: Option<&KeyParts>, now: &KeyParts) -> String {
    let Some(last) = last else {
        return "no earlier link of this output is recorded on this machine".to_owned();
    };
    let gone = last
        .keys()
        .filter(|part| !now.contains_key(*part))
        .map(|part| format!("{part} was removed"));
    let changed = now
        .iter()
        .filter_map(|(part, digest)| match last.get(part) {
            None => Some(format!("{part} was added")),
            Some(old) if old != digest => Some(format!("{part} has changed")),
            Some(_) => None,
        });
    let mut changes: Vec<String> = changed.chain(gone).collect();
    let more = changes.len().saturating_sub(MAX_NAMED);
    changes.truncate(MAX_NAMED);
    match (changes.is_empty(), more) {
        (true, _) => "the entry was evicted or removed".to_owned(),
        (_, 0) => changes.join(", "),
        _ => format!("{} and {more} more", changes.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn changes_are_named() {
        let made = |parts: &[(&str, &str)]| -> KeyParts {
            parts
                .iter()
                .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()))
                .collect()
        };
        let last = made(&[("a.o", "1"), ("b.o", "2"), ("the linker", "3")]);
        assert_eq!(
            difference(None, &last),
            "no earlier link of this output is recorded on this machine"
        );
        assert_eq!(
            difference(Some(&last), &last),
            "the entry was evicted or removed"
        );
        let now = made(&[("a.o", "1"), ("b.o", "x"), ("c.o", "y")]);
        assert_eq!(
            difference(Some(&last), &now),
            "b.o has changed, c.o was added, the linker was removed"
        );
        let now = made(&[("a.o", "x"), ("b.o", "x"), ("the linker", "x"), ("n.o", "")]);
        assert_eq!(
            difference(Some(&last), &now),
            "a.o has changed, b.o has changed, n.o was added and 1 more"
        );
    }
}
