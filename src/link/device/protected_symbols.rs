//! Protects symbols from being dropped by device LTO for NVIDIA GPUs.
//!
//! clang-nvlink-wrapper treats hidden symbols as unused, and so drops kernels that host code
//! registers and launches (llvm/llvm-project#216891). It passes `-u` on to nvlink, which has no
//! such option.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};

use super::{DeviceContext, nvlink};
use crate::args::settings::LinkSettings;
use crate::formats::{bitcode, magic};
use crate::link::select::DeviceJob;
use crate::target::Target;

/// Options that make LTO treat no symbol as dead and internalize none.
pub(super) const KEEP_ALL: [&str; 2] = [
    "-mllvm=-compute-dead=false",
    "-mllvm=-enable-lto-internalization=false",
];

/// Returns the symbols that the user requires with `-u` in the device link for `target`.
pub(crate) fn required_symbols(settings: &LinkSettings, target: &Target) -> BTreeSet<String> {
    split_required(settings.device.linker_args(target)).0
}

/// Adapts `words`, the arguments of `job` for nvlink's wrapper.
///
/// Removes the options for required symbols. If LTO would drop a required or registered symbol,
/// adds the options that prevent it.
pub(super) fn nvlink_words<'w>(
    words: impl Iterator<Item = &'w OsStr>,
    job: &DeviceJob<'_>,
    context: &DeviceContext<'_>,
) -> Vec<OsString> {
    let (required, words) = split_required(words);
    let mut words: Vec<OsString> = words.into_iter().map(OsStr::to_owned).collect();
    let is_wanted = |name: &str| required.contains(name) || job.registered.contains(name);
    if nvlink::is_wrapped(context)
        && job
            .inputs
            .iter()
            .any(|input| defines_hidden(&input.bytes, &is_wanted))
    {
        // No option protects a single symbol. Unused functions stay in the image, which costs only
        // size.
        words.extend(KEEP_ALL.map(OsString::from));
    }
    words
}

/// Whether `input` is bitcode that defines a wanted symbol as hidden, so that LTO would drop it.
fn defines_hidden(input: &[u8], is_wanted: &dyn Fn(&str) -> bool) -> bool {
    if !magic::is_bitcode(input) {
        return false;
    }
    // The linker reports damaged modules.
    let Ok(symbols) = bitcode::symbols(input) else {
        return false;
    };
    let mut hidden = symbols.defined.iter().filter(|symbol| symbol.hidden);
    hidden.any(|symbol| std::str::from_utf8(&symbol.name).is_ok_and(is_wanted))
}

/// Splits `words` into the required symbols and the other arguments.
fn split_required<'w>(
    words: impl Iterator<Item = &'w OsStr>,
) -> (BTreeSet<String>, Vec<&'w OsStr>) {
    let (mut required, mut others) = (BTreeSet::new(), Vec::new());
    let mut words = words;
    while let Some(word) = words.next() {
        let text = word.to_str().unwrap_or_default();
        let name = match text
            .strip_prefix("--")
            .or_else(|| text.strip_prefix('-'))
            .unwrap_or_default()
        {
            "u" | "undefined" => words.next().map(|next| next.to_string_lossy().into_owned()),
            option => {
                let short = || {
                    text.strip_prefix("-u").filter(|_| {
                        !option.starts_with("undefined") && !option.starts_with("unresolved")
                    })
                };
                option
                    .strip_prefix("undefined=")
                    .or_else(short)
                    .map(str::to_owned)
            }
        };
        match name {
            Some(name) => drop(required.insert(name)),
            None => others.push(word),
        }
    }
    (required, others)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_a_required_symbol() {
        let line: Vec<&OsStr> = [
            "-ua",
            "-u",
            "b",
            "--undefined=c",
            "-undefined",
            "d",
            "-lu",
            "--unresolved-symbols=x",
            "--undefined-version",
            "-v",
        ]
        .map(OsStr::new)
        .to_vec();
        let (required, others) = split_required(line.into_iter());
        assert_eq!(
            required.into_iter().collect::<Vec<_>>().join(" "),
            "a b c d"
        );
        assert_eq!(
            others,
            ["-lu", "--unresolved-symbols=x", "--undefined-version", "-v"].map(OsStr::new)
        );
    }
}
