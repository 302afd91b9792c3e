//! Translates code generation options of a device link: to compiler arguments for ThinLTO units
//! that compile as separate jobs, and for device linkers other than ld.lld.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use super::clang::links_by_plugin;
use super::{DeviceContext, libraries};
use crate::link::select::DeviceJob;
use crate::toolchain::{self, LinkerFamily};
use offld_system::run;

// Translates the linker's code generation options to compiler arguments, for ThinLTO units that
// compile as separate jobs.
//
// The object must equal the one that ld.lld generates in its own process. ld.lld passes on general
// optimization options itself. The CPU, its features and LLVM's own options have to be added here.
// If an option has no translation, the linker compiles the units.

/// Options of ld.lld that do not change a unit's code, or that the linker passes on itself. A name
/// ending in `=` is a prefix.
const HARMLESS: [&str; 4] = ["lto-O2", "lto-O3", "lto-partitions=", "thinlto-jobs="];
/// The same after `-plugin-opt=`.
const HARMLESS_PLUGIN: [&str; 5] = ["O2", "O3", "thinlto", "jobs=", "lto-partitions="];
/// Prefixes of ld.lld options that may change a unit's code.
const CODE: [&str; 13] = [
    "lto",
    "thinlto",
    "plugin-opt",
    "disable-verify",
    "no-lto",
    "opt-remarks",
    "save-temps",
    "time-trace",
    "shuffle-sections",
    "fat-lto",
    "basic-block",
    "call-graph-profile-sort",
    "no-call-graph-profile-sort",
];
/// LLVM options that clang passes to optimize HIP units together. Compiler and linker both know
/// them. A name ending in `=` is a prefix.
const KNOWN: [&str; 4] = [
    "-force-import-all",
    "-avail-extern-to-local",
    "-avail-extern-gv-in-addrspace-to-local=",
    "-amdgpu-internalize-symbols",
];

/// The translated options.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct RemoteCompilerArgs {
    cpu: Option<String>,
    /// CPU features, each with `+` or `-`.
    features: Vec<String>,
    /// LLVM's own options.
    llvm: Vec<String>,
}

impl RemoteCompilerArgs {
    /// Translates the linker's arguments. The error names the first option without a translation.
    pub(super) fn of(args: &[String]) -> Result<RemoteCompilerArgs, String> {
        let mut words = RemoteCompilerArgs::default();
        let mut shared = false;
        let mut args = args.iter().map(String::as_str);
        while let Some(arg) = args.next() {
            let Some(option) = arg.strip_prefix('-').filter(|option| !option.is_empty()) else {
                continue;
            };
            let option = option.strip_prefix('-').unwrap_or(option);
            shared |= option == "shared" || option == "Bshareable";
            if option == "r" || option == "relocatable" {
                return Err(format!("`{arg}` requests a relocatable output"));
            }
            let known = match option.split_once('=') {
                None if option == "mllvm" => words.llvm_option(args.next().unwrap_or_default()),
                Some(("mllvm", value)) => words.llvm_option(value),
                None if option == "plugin-opt" => {
                    words.plugin_option(args.next().unwrap_or_default())
                }
                Some(("plugin-opt", value)) => words.plugin_option(value),
                _ => {
                    HARMLESS.iter().any(|name| matches(option, name))
                        || !CODE.iter().any(|name| option.starts_with(name))
                }
            };
            if !known {
                return Err(format!(
                    "the compiler has no equivalent of the linker argument `{arg}`"
                ));
            }
        }
        // If the CPU is not given, or the image is not a shared library, compiler and linker choose
        // different defaults.
        match words.cpu {
            _ if !shared => Err("the image is not a shared library".to_owned()),
            None => Err("the linker arguments name no CPU".to_owned()),
            Some(_) => Ok(words),
        }
    }

    /// Adds the value of `-plugin-opt=`. Returns false if it is unknown.
    fn plugin_option(&mut self, value: &str) -> bool {
        if let Some(cpu) = value.strip_prefix("mcpu=") {
            self.cpu = Some(cpu.to_owned());
            return true;
        }
        if value.starts_with('-') {
            return self.llvm_option(value);
        }
        HARMLESS_PLUGIN.iter().any(|name| matches(value, name))
    }

    /// Adds one of LLVM's own options. Returns false if it cannot be passed on.
    fn llvm_option(&mut self, value: &str) -> bool {
        let bare = value.trim_start_matches('-');
        if let Some(features) = bare.strip_prefix("mattr=") {
            self.features.extend(
                features
                    .split(',')
                    .filter(|feature| !feature.is_empty())
                    .map(str::to_owned),
            );
        } else if let Some(cpu) = bare.strip_prefix("mcpu=") {
            self.cpu = Some(cpu.to_owned());
        } else if bare.is_empty() || value.contains('/') {
            // An option that names a file makes the object depend on the file's contents, which are
            // not part of the unit's key.
            return false;
        } else {
            self.llvm.push(value.to_owned());
        }
        true
    }

    /// Whether the compiler must be tested with the options first. Some of the linker's LLVM
    /// options do not exist in clang.
    pub(super) fn are_uncertain(&self) -> bool {
        self.llvm
            .iter()
            .any(|option| !KNOWN.iter().any(|name| matches(option, name)))
    }

    /// The compiler arguments for `triple`.
    pub(super) fn for_compiler(&self, triple: &str) -> Vec<String> {
        let mut words = Vec::new();
        if triple.starts_with("amdgcn") {
            // The unit already contains the device libraries.
            words.push("-nogpulib".to_owned());
        }
        let mut pass = |option: &str, value: &str| {
            words.extend(["-Xclang", option, "-Xclang", value].map(str::to_owned))
        };
        if let Some(cpu) = &self.cpu {
            pass("-target-cpu", cpu);
        }
        self.features
            .iter()
            .for_each(|feature| pass("-target-feature", feature));
        for option in &self.llvm {
            words.extend(["-mllvm".to_owned(), option.clone()]);
        }
        words
    }
}

/// Whether `option` equals `name`, or begins with it if `name` ends in `=`.
fn matches(option: &str, name: &str) -> bool {
    if name.ends_with('=') {
        option.starts_with(name)
    } else {
        option == name
    }
}

// Translates code generator options for device linkers other than ld.lld.
//
// The host linker runs device links for a CPU. clang passes LLVM's code generator options in
// ld.lld's spelling (`-mllvm X`, `--plugin-opt=X`, `--lto-O2`), which GNU ld, gold and mold
// interpret differently. They generate code only through LLVM's plugin, which has its own options,
// and only for bitcode.

/// The option spelling that the linker of a device link understands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OptionStyle {
    /// ld.lld's options, also for unknown linkers.
    Lld,
    /// Options of LLVM's plugin, for GNU ld, gold and mold.
    Plugin,
    /// No code generator options, for the same linkers without the plugin.
    Plain,
}

impl OptionStyle {
    /// Determines the spelling for the link of `job`.
    pub(super) fn of(job: &DeviceJob<'_>, context: &DeviceContext<'_>) -> OptionStyle {
        if !job.target.is_cpu() {
            return OptionStyle::Lld;
        }
        match linker_of(job, context)
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
fn linker_of(job: &DeviceJob<'_>, context: &DeviceContext<'_>) -> Option<PathBuf> {
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
        Some(name) => Some(run::beside_us_or_on_path(&format!("ld.{}", name.display()))),
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

    fn of(line: &str) -> Result<String, String> {
        let args: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        RemoteCompilerArgs::of(&args).map(|words| words.for_compiler("amdgcn-amd-amdhsa").join(" "))
    }

    #[test]
    fn linker_options_are_translated() {
        let line = "--no-undefined -shared -plugin-opt=mcpu=gfx90a -plugin-opt=thinlto -plugin-opt=O3 -plugin-opt=-mattr=+xnack,-sramecc \
                    -mllvm -amdgpu-internalize-symbols -mllvm=-x=2 --lto-O2 --lto-partitions=8 -o x a.o --thinlto-jobs=2 -plugin-opt -y";
        assert_eq!(
            of(line).unwrap(),
            "-nogpulib -Xclang -target-cpu -Xclang gfx90a -Xclang -target-feature -Xclang +xnack -Xclang -target-feature -Xclang \
             -sramecc -mllvm -amdgpu-internalize-symbols -mllvm -x=2 -mllvm -y"
        );
        let host = ["-shared", "-plugin-opt=mcpu=x86-64"].map(str::to_owned);
        let words = RemoteCompilerArgs::of(&host)
            .unwrap()
            .for_compiler("x86_64-pc-linux-gnu");
        assert_eq!(words, ["-Xclang", "-target-cpu", "-Xclang", "x86-64"]);
    }

    #[test]
    fn options_without_a_translation_are_errors() {
        for option in [
            "--lto-O1",
            "-plugin-opt=O0",
            "--lto-CGO2",
            "--lto-O20",
            "--opt-remarks-filename=x",
            "--lto-emit-asm",
            "-r",
        ] {
            let why = of(&format!("-shared -plugin-opt=mcpu=gfx90a {option}")).unwrap_err();
            assert!(why.contains(&format!("`{option}`")), "{why}");
        }
        for option in [
            "--thinlto-cache-dir=x",
            "--lto-sample-profile=x",
            "-plugin-opt=other",
            "-mllvm -file=/x",
            "-mllvm",
        ] {
            assert!(
                of(&format!("-shared -plugin-opt=mcpu=gfx90a {option}")).is_err(),
                "{option}"
            );
        }
        assert!(
            of("-o x a.o -plugin-opt=mcpu=gfx90a")
                .unwrap_err()
                .contains("not a shared library")
        );
        assert!(of("-shared a.o").unwrap_err().contains("no CPU"));
    }

    #[test]
    fn llvm_options_that_clang_passes_are_known() {
        let uncertain = |line: &str| {
            let args: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            RemoteCompilerArgs::of(&args).unwrap().are_uncertain()
        };
        assert!(!uncertain(
            "-shared -plugin-opt=mcpu=gfx90a -plugin-opt=-force-import-all -plugin-opt=-avail-extern-gv-in-addrspace-to-local=3"
        ));
        assert!(!uncertain(
            "-shared -plugin-opt=mcpu=gfx90a -plugin-opt=-mattr=+xnack"
        ));
        assert!(uncertain(
            "-shared -plugin-opt=mcpu=gfx90a -mllvm -code-model=large"
        ));
    }

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
