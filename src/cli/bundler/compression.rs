//! Environment variables for settings that the bundler's command line omits
//! (docs/spec/containers.md 2.14).

use crate::args::cl::ParsedLine;
use crate::formats::compressed::{Options, Version};
use crate::sys::session;
use crate::sys::shell::Shell;
use crate::sys::threads;

/// Settings, from options, else from environment variables, else from LLVM's defaults.
pub(super) struct Settings {
    compress: bool,
    options: Options,
    /// Whether to print sizes and times of compression and decompression.
    pub(super) verbose: bool,
}

impl Settings {
    /// The settings for `line`. A variable with an invalid value is ignored with LLVM's warning.
    pub(super) fn new(line: &ParsedLine, shell: &Shell) -> Settings {
        let variable =
            |name: &str| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
        let ignored =
            variable(session::OFFLOAD_BUNDLER_IGNORE_ENV_VAR).is_some_and(|value| value == "1");
        let variable = |name: &str| if ignored { None } else { variable(name) };
        let is_one = |name: &str| variable(name).is_some_and(|value| value == "1");
        let level = variable(session::OFFLOAD_BUNDLER_COMPRESSION_LEVEL)
            .and_then(|text| level(&text, shell));
        let version = variable(session::COMPRESSED_BUNDLE_FORMAT_VERSION)
            .and_then(|text| version(&text, shell));
        let default = Options::default();
        Settings {
            compress: line
                .flag("compress")
                .unwrap_or_else(|| is_one(session::OFFLOAD_BUNDLER_COMPRESS)),
            options: Options {
                version: version.unwrap_or(default.version),
                level: line
                    .int("compression-level")
                    .or(level)
                    .unwrap_or(default.level),
                workers: threads::for_compression(),
                ..default
            },
            verbose: line
                .flag("verbose")
                .unwrap_or_else(|| is_one(session::OFFLOAD_BUNDLER_VERBOSE)),
        }
    }

    /// The compression of the output, or `None` if it stays uncompressed.
    pub(super) fn compression(&self) -> Option<Options> {
        self.compress.then_some(self.options)
    }
}

/// Parses a decimal number with an optional `-`. Like LLVM, rejects a leading `+`.
fn level(text: &str, shell: &Shell) -> Option<i32> {
    let level = decimal(text.strip_prefix('-').unwrap_or(text)).and_then(|_| text.parse().ok());
    if level.is_none() {
        shell.line(&format!(
            "Warning: Invalid value for {}: {text}. Ignoring it.",
            session::OFFLOAD_BUNDLER_COMPRESSION_LEVEL
        ));
    }
    level
}

fn version(text: &str, shell: &Shell) -> Option<Version> {
    let name = session::COMPRESSED_BUNDLE_FORMAT_VERSION;
    match decimal(text).and_then(|digits| digits.parse::<u16>().ok()) {
        Some(2) => Some(Version::V2),
        Some(3) => Some(Version::V3),
        Some(_) => {
            shell.line(&format!("Warning: Invalid value for {name}: {text}. Valid values are 2 or 3. Using default version 3."));
            None
        }
        None => {
            shell.line(&format!(
                "Warning: Invalid value for {name}: {text}. Using default version 3."
            ));
            None
        }
    }
}

/// Returns `text` if it consists of decimal digits.
fn decimal(text: &str) -> Option<&str> {
    (!text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())).then_some(text)
}
