//! Cache key of an image: its device code, its linker, the linker's arguments and the environment.
//! The history has the parts, so that the next cache miss can report the changes.

use std::ffi::OsString;

use super::history::KeyParts;
use super::linker_args::LinkerCommand;
use super::{DeviceCache, LinkQuery, ResolvedLink, Tool};
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

    pub(super) fn key_parts(&self, query: &LinkQuery<'_>, resolved: &ResolvedLink) -> KeyParts {
        let ResolvedLink {
            linker_command,
            linker_args,
            tools,
            inputs,
            ..
        } = resolved;
        let named = query.job.inputs.iter().zip(inputs);
        let programs = std::iter::once(&linker_command.program).chain(&linker_args.tools);
        KeyParts {
            inputs: named
                .map(|(input, digest)| (input.origin.to_string(), digest.to_string()))
                .collect(),
            kernels: query.job.registered.clone(),
            stable_names: query.job.stable_names,
            linkers: programs
                .zip(tools)
                .map(|(program, tool)| (program.display().to_string(), tool.digest.to_string()))
                .collect(),
            arguments: linker_command.args.clone(),
            variables: variables()
                .into_iter()
                .map(|(name, value)| {
                    let text = |text: OsString| text.to_string_lossy().into_owned();
                    (text(name), text(value))
                })
                .collect(),
            signing_key: self.cache.trust().map(|trust| trust.to_string()),
        }
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
    let contents: Vec<&[u8]> = unknown.map(|(input, _)| input.bytes.to_link()).collect();
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
    let mut key = KeyBuilder::default();
    for (name, value) in variables() {
        key.add(name.as_encoded_bytes())
            .add(value.as_encoded_bytes());
    }
    key.digest()
}

/// The environment variables that compilers and linkers read, sorted.
fn variables() -> Vec<(OsString, OsString)> {
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
    read
}
