//! The words by which a compiler makes of a ThinLTO unit what ld.lld makes of it in its own process. ld.lld hands on what its options mean
//! for optimization in general; what it is told of processors and of LLVM's own options has to be told to the compiler as well. Where the
//! line has an option for which no such word is known, units are compiled in the linker's process.

/// Options of ld.lld that change nothing in the code of a unit, or that the linker hands on itself, by how they begin.
const HARMLESS: [&str; 4] = ["lto-O2", "lto-O3", "lto-partitions=", "thinlto-jobs="];
/// The same after `-plugin-opt=`.
const HARMLESS_PLUGIN: [&str; 5] = ["O2", "O3", "thinlto", "jobs=", "lto-partitions="];
/// Options of ld.lld that may change the code of a unit, by how they begin.
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
/// Options of LLVM that both programs know: those by which clang has units of HIP optimized together.
const KNOWN: [&str; 4] =
    ["-force-import-all", "-avail-extern-to-local", "-avail-extern-gv-in-addrspace-to-local=", "-amdgpu-internalize-symbols"];

/// What the compiler is told.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct RemoteWords {
    /// The processor.
    cpu: Option<String>,
    /// Its features, each with `+` or `-`.
    features: Vec<String>,
    /// LLVM's own options.
    llvm: Vec<String>,
}

impl RemoteWords {
    /// For the linker's line `args`; an error names the word for which there is none.
    pub(super) fn of(args: &[String]) -> Result<RemoteWords, String> {
        let mut words = RemoteWords::default();
        let mut shared = false;
        let mut args = args.iter().map(String::as_str);
        while let Some(arg) = args.next() {
            let Some(option) = arg.strip_prefix('-').filter(|option| !option.is_empty()) else { continue };
            let option = option.strip_prefix('-').unwrap_or(option);
            shared |= option == "shared" || option == "Bshareable";
            if option == "r" || option == "relocatable" {
                return Err(format!("the linker is given `{arg}`"));
            }
            let known = match option.split_once('=') {
                None if option == "mllvm" => words.llvm_option(args.next().unwrap_or_default()),
                Some(("mllvm", value)) => words.llvm_option(value),
                None if option == "plugin-opt" => words.plugin_option(args.next().unwrap_or_default()),
                Some(("plugin-opt", value)) => words.plugin_option(value),
                _ => HARMLESS.iter().any(|name| matches(option, name)) || !CODE.iter().any(|name| option.starts_with(name)),
            };
            if !known {
                return Err(format!("no compiler does what `{arg}` asks of the linker"));
            }
        }
        // What they are not told, compilers and linkers choose by themselves, and each in its own way.
        match words.cpu {
            _ if !shared => Err("the image is no shared library".to_owned()),
            None => Err("the linker is told no processor".to_owned()),
            Some(_) => Ok(words),
        }
    }

    /// Takes a word after `-plugin-opt=`; returns whether it is known.
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

    /// Takes an option of LLVM's; returns whether it can be handed on.
    fn llvm_option(&mut self, value: &str) -> bool {
        let bare = value.trim_start_matches('-');
        if let Some(features) = bare.strip_prefix("mattr=") {
            self.features.extend(features.split(',').filter(|feature| !feature.is_empty()).map(str::to_owned));
        } else if let Some(cpu) = bare.strip_prefix("mcpu=") {
            self.cpu = Some(cpu.to_owned());
        } else if bare.is_empty() || value.contains('/') {
            // It names a file, which nobody would look for changes in.
            return false;
        } else {
            self.llvm.push(value.to_owned());
        }
        true
    }

    /// Whether LLVM's options have to be shown to the compiler first: it lacks some that linkers have.
    pub(super) fn are_uncertain(&self) -> bool {
        self.llvm.iter().any(|option| !KNOWN.iter().any(|name| matches(option, name)))
    }

    /// The compiler's words for the machine `triple`.
    pub(super) fn for_compiler(&self, triple: &str) -> Vec<String> {
        let mut words = Vec::new();
        if triple.starts_with("amdgcn") {
            // The libraries of the device were linked already.
            words.push("-nogpulib".to_owned());
        }
        let mut pass = |option: &str, value: &str| words.extend(["-Xclang", option, "-Xclang", value].map(str::to_owned));
        if let Some(cpu) = &self.cpu {
            pass("-target-cpu", cpu);
        }
        self.features.iter().for_each(|feature| pass("-target-feature", feature));
        for option in &self.llvm {
            words.extend(["-mllvm".to_owned(), option.clone()]);
        }
        words
    }
}

/// Whether `option` is `name`, which stands for all that begin with it if it ends in `=`.
fn matches(option: &str, name: &str) -> bool {
    if name.ends_with('=') { option.starts_with(name) } else { option == name }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Result<String, String> {
        let args: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        RemoteWords::of(&args).map(|words| words.for_compiler("amdgcn-amd-amdhsa").join(" "))
    }

    #[test]
    fn what_linkers_are_told_compilers_are_told() {
        let line = "--no-undefined -shared -plugin-opt=mcpu=gfx90a -plugin-opt=thinlto -plugin-opt=O3 -plugin-opt=-mattr=+xnack,-sramecc \
                    -mllvm -amdgpu-internalize-symbols -mllvm=-x=2 --lto-O2 --lto-partitions=8 -o x a.o --thinlto-jobs=2 -plugin-opt -y";
        assert_eq!(
            of(line).unwrap(),
            "-nogpulib -Xclang -target-cpu -Xclang gfx90a -Xclang -target-feature -Xclang +xnack -Xclang -target-feature -Xclang \
             -sramecc -mllvm -amdgpu-internalize-symbols -mllvm -x=2 -mllvm -y"
        );
        let host = ["-shared", "-plugin-opt=mcpu=x86-64"].map(str::to_owned);
        let words = RemoteWords::of(&host).unwrap().for_compiler("x86_64-pc-linux-gnu");
        assert_eq!(words, ["-Xclang", "-target-cpu", "-Xclang", "x86-64"]);
    }

    #[test]
    fn what_no_compiler_can_do_is_left_to_the_linker() {
        for option in
            ["--lto-O1", "-plugin-opt=O0", "--lto-CGO2", "--lto-O20", "--opt-remarks-filename=x", "--lto-emit-asm", "-r"]
        {
            let why = of(&format!("-shared -plugin-opt=mcpu=gfx90a {option}")).unwrap_err();
            assert!(why.contains(&format!("`{option}`")), "{why}");
        }
        for option in ["--thinlto-cache-dir=x", "--lto-sample-profile=x", "-plugin-opt=other", "-mllvm -file=/x", "-mllvm"] {
            assert!(of(&format!("-shared -plugin-opt=mcpu=gfx90a {option}")).is_err(), "{option}");
        }
        assert!(of("-o x a.o -plugin-opt=mcpu=gfx90a").unwrap_err().contains("no shared library"));
        assert!(of("-shared a.o").unwrap_err().contains("no processor"));
    }

    #[test]
    fn options_of_llvm_that_clang_itself_gives_are_known() {
        let uncertain = |line: &str| {
            let args: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            RemoteWords::of(&args).unwrap().are_uncertain()
        };
        assert!(!uncertain(
            "-shared -plugin-opt=mcpu=gfx90a -plugin-opt=-force-import-all -plugin-opt=-avail-extern-gv-in-addrspace-to-local=3"
        ));
        assert!(!uncertain("-shared -plugin-opt=mcpu=gfx90a -plugin-opt=-mattr=+xnack"));
        assert!(uncertain("-shared -plugin-opt=mcpu=gfx90a -mllvm -code-model=large"));
    }
}
