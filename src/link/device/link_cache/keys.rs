//! Cache key of an image, and the parts of it that a later miss compares.

use super::linker_args::LinkerArgs;
use super::linker_command::LinkerCommand;
use super::{DeviceCache, LinkQuery, Tool, history};
use crate::store::{Digest, Key, KeyBuilder};

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
        (linker_command, linker_args): (&LinkerCommand, &LinkerArgs),
        tools: &[Tool],
        inputs: &[Digest],
    ) -> history::KeyParts {
        let named = query.job.inputs.iter().zip(inputs);
        let mut key_parts: history::KeyParts = named
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
