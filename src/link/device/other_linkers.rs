//! Translates code generator options for device linkers other than ld.lld.
//!
//! The host linker runs device links for a CPU. clang passes LLVM's code generator options in
//! ld.lld's spelling (`-mllvm X`, `--plugin-opt=X`, `--lto-O2`), which GNU ld, gold and mold
//! interpret differently. They generate code only through LLVM's plugin, which has its own options,
//! and only for bitcode.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use super::DeviceContext;
use super::clang::links_by_plugin;
use super::libraries;
use crate::link::select::DeviceJob;
use crate::sys::toolchain::{self, LinkerFamily};

/// The option spelling that the linker of a device link understands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OptionStyle {
    /// ld.lld's options, also for unknown linkers.
    Lld,
    /// Options of LLVM's plugin, for GNU ld, gold and mold.
    Plugin,
    /// No code generator options: those linkers, without the plugin.
    Plain,
}

impl OptionStyle {
    /// Determines the spelling for the link of `job`.
    pub(super) fn of(job: &DeviceJob<'_>, context: &DeviceContext<'_>) -> OptionStyle {
        if !job.target.is_cpu() {
            return OptionStyle::Lld;
        }
        match linker(job, context)
            .map_or(LinkerFamily::Other, |path| toolchain::linker_family(&path))
        {
            LinkerFamily::Lld | LinkerFamily::Other => OptionStyle::Lld,
            _ if links_by_plugin(job, context) => OptionStyle::Plugin,
            LinkerFamily::Gnu | LinkerFamily::Gold | LinkerFamily::Mold | LinkerFamily::Wild => {
                OptionStyle::Plain
            }
        }
    }

    /// Translates `words` for this linker, and drops options without an equivalent.
    pub(super) fn of_lld<'w>(self, words: impl IntoIterator<Item = &'w OsStr>) -> Vec<OsString> {
        let mut words = words.into_iter();
        if self == OptionStyle::Lld {
            return words.map(OsStr::to_owned).collect();
        }
        let mut of_plugin: Vec<OsString> = Vec::new();
        let mut to_plugin = |value: &str| of_plugin.push(format!("-plugin-opt={value}").into());
        let mut translated = Vec::new();
        while let Some(word) = words.next() {
            let option = word
                .to_str()
                .and_then(|text| text.strip_prefix("--").or_else(|| text.strip_prefix('-')))
                .unwrap_or_default();
            let (name, value) = option
                .split_once('=')
                .map_or((option, None), |(name, value)| (name, Some(value)));
            let next = |words: &mut dyn Iterator<Item = &'w OsStr>| {
                words.next().map(|next| next.to_string_lossy().into_owned())
            };
            match (name, value) {
                ("mllvm" | "plugin-opt", Some(value)) => to_plugin(value),
                ("mllvm" | "plugin-opt", None) => {
                    next(&mut words).iter().for_each(|value| to_plugin(value))
                }
                ("thinlto-jobs", Some(count)) => to_plugin(&format!("jobs={count}")),
                ("thinlto-cache-dir", Some(folder)) => to_plugin(&format!("cache-dir={folder}")),
                ("thinlto-cache-policy", Some(policy)) => {
                    to_plugin(&format!("cache-policy={policy}"))
                }
                ("lto-emit-llvm", None) => to_plugin("emit-llvm"),
                (name, None)
                    if name
                        .strip_prefix("lto-O")
                        .is_some_and(|level| level.len() == 1) =>
                {
                    to_plugin(&name[4..])
                }
                (name, _) if name.starts_with("lto-") || name.starts_with("thinlto-") => {}
                _ => translated.push(word.to_owned()),
            }
        }
        if self == OptionStyle::Plugin {
            translated.append(&mut of_plugin);
        }
        translated
    }
}

/// Returns the linker that the compiler runs for the CPU of `job`, if it is known.
fn linker(job: &DeviceJob<'_>, context: &DeviceContext<'_>) -> Option<PathBuf> {
    let words = || {
        context
            .settings
            .device
            .compiler_args(&job.target)
            .filter_map(OsStr::to_str)
    };
    let last = |name: &str| {
        words()
            .filter_map(|word| word.strip_prefix(name))
            .next_back()
            .map(PathBuf::from)
    };
    if let Some(path) = last("--ld-path=")
        .or_else(|| libraries::linker_path(context, &job.target).map(Path::to_path_buf))
    {
        return Some(path);
    }
    match last("-fuse-ld=") {
        Some(named) if named.is_absolute() => Some(named),
        Some(name) => Some(toolchain::beside_us_or_on_path(&format!(
            "ld.{}",
            name.display()
        ))),
        // The compiler runs `ld`, which is the host's linker for the host's architecture.
        None => context
            .host_linker
            .is_absolute()
            .then(|| context.host_linker.to_path_buf()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translated(words: OptionStyle, line: &str) -> String {
        let line: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let translated = words.of_lld(line.iter().map(OsString::as_os_str));
        translated
            .iter()
            .map(|word| word.to_string_lossy().into_owned())
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn options_are_translated_for_each_linker() {
        let line = "-mllvm -x=5 -mllvm=-y --plugin-opt=-z -plugin-opt O2 --lto-O3 --thinlto-jobs=2 --lto-partitions=4 -z now -lm a.o";
        assert_eq!(translated(OptionStyle::Lld, line), line);
        assert_eq!(translated(OptionStyle::Plain, line), "-z now -lm a.o");
        let plugin = "-plugin-opt=-x=5 -plugin-opt=-y -plugin-opt=-z -plugin-opt=O2 -plugin-opt=O3 -plugin-opt=jobs=2";
        assert_eq!(
            translated(OptionStyle::Plugin, line),
            format!("-z now -lm a.o {plugin}")
        );
        assert_eq!(translated(OptionStyle::Plugin, "-mllvm"), "");
    }
}
