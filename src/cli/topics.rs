//! What `offld help TOPIC` and the manual page of topics say. A topic is a text of its own and what tables say elsewhere: options, environment
//! variables, commands, names. What a table has is not written here again.

use super::PERSONALITIES;
use super::environment::{VARIABLES, Variable};
use super::help::spelling;
use crate::args::own_rows;

/// How wide a screen is taken to be.
pub(super) const WIDTH: usize = 80;
/// Where the second column of a table starts. A longer first column has a line of its own.
const COLUMN: usize = 29;

/// Something to know that is of no single command.
pub(super) struct Topic {
    /// The word after `offld help`.
    pub(super) name: &'static str,
    /// One line for the list of topics.
    pub(super) about: &'static str,
    /// What there is to say; lines of at most [`WIDTH`] columns.
    pub(super) text: &'static str,
    /// The options of links that it is about, without dashes.
    options: &'static [&'static str],
    /// The environment variables that it is about.
    variables: fn(&Variable) -> bool,
    /// What else a table has on it.
    more: fn(&clap::Command) -> String,
}

/// A topic of text alone.
const fn topic(name: &'static str, about: &'static str, text: &'static str) -> Topic {
    Topic { name, about, text, options: &[], variables: |_| false, more: |_| String::new() }
}

/// All of them, by name.
pub(super) const TOPICS: &[Topic] = &[
    Topic {
        options: &["wrapper-cache", "wrapper-verbose"],
        variables: |variable| variable.name.starts_with("OFFLD_CACHE") || variable.name == "XDG_CACHE_HOME",
        ..topic(
            "cache",
            "what links need not be done again",
            "A device link whose device code, command, tools and environment did not\n\
             change takes its image from the cache, and a program with such images its\n\
             registration code. The cache is on unless it is turned off; it holds 5 GiB\n\
             unless told otherwise, and what cannot be read or kept is linked again.\n\
             --wrapper-verbose says of each device link whether it was found, and if not\n\
             what has changed; `offld cache stats` counts; `offld explain` reads the log.",
        )
    },
    Topic {
        options: &["wrapper-launcher", "wrapper-launcher-wait", "wrapper-remote-jobs", "wrapper-distribute"],
        variables: |variable| {
            ["OFFLD_LAUNCHER", "OFFLD_REMOTE_JOBS", "OFFLD_SHARED_TMP"].iter().any(|start| variable.name.starts_with(start))
        },
        ..topic(
            "cluster",
            "device links on other machines: Slurm, SSH and others",
            "A launcher is a command that runs the words after its own on another machine,\n\
             and ends when that has ended:\n\n  \
             export OFFLD_LAUNCHER='srun -Q -n1 -c{threads} --mem={mem}M -J {job}'\n  \
             export OFFLD_LAUNCHER='ssh far'\n\n\
             Only device links go there, and units of ThinLTO; what is in the cache, the\n\
             host link and all questions to the compiler stay here. The machines have to\n\
             see the compiler and the folder for temporary files by the same paths. Where\n\
             a job does not begin or a machine is lost, this machine does it, and a\n\
             warning says so.",
        )
    },
    Topic {
        variables: |_| true,
        ..topic(
            "environment",
            "all environment variables that offld reads",
            "Where there is an option as well, the option counts.",
        )
    },
    Topic {
        more: exit_statuses,
        ..topic(
            "exit-status",
            "what the exit status of each command says",
            "A link, and the tools that offld stands in for: the status of the program that\n\
             failed, 128+N where signal N ended it or offld, 1 for all other errors.\n\
             A command that has no line here: 0, or 1 after an error.",
        )
    },
    Topic {
        variables: |variable| {
            ["HOME", "OFFLD_CACHE", "OFFLD_CACHE_LOG", "OFFLD_REPRODUCE", "OFFLD_SHARED_TMP", "TMPDIR"].contains(&variable.name)
                || variable.name.starts_with("XDG_")
        },
        ..topic(
            "files",
            "which files offld writes, beside those that it is asked for",
            "The cache        XDG_CACHE_HOME/offld, else ~/.cache/offld; `offld cache path`\n\
             Temporary files  a folder in TMPDIR for each link, gone on every way out; with\n                 \
             a launcher beside the output, or in OFFLD_SHARED_TMP\n\
             Running links    XDG_RUNTIME_DIR/offld, else offld-UID in TMPDIR: an empty\n                 \
             file for each process that links for a device\n\n\
             Outputs appear whole or not at all. There is no file of settings.",
        )
    },
    Topic {
        options: &["wrapper-late-images", "wrapper-verbose"],
        variables: |variable| variable.name == "OFFLD_LATE_IMAGES",
        ..topic(
            "late-images",
            "the host link beside the device links, images put in afterwards",
            "A host link needs to know only where device images will be. Where a link is\n\
             late, the host link runs beside the device links with 48 bytes in place of\n\
             each image, and the images are put into the program when both are done.\n\
             Images then may have any size, and no linker sees them.\n\n\
             auto  from 4 MiB of device code in the inputs on, where it can be done\n\
             on    wherever it can be done; --wrapper-verbose says why where it cannot\n\
             off   never\n\n\
             It cannot with -r, linker scripts, maps of the link, or linkers other than\n\
             ld.lld, GNU ld, gold and mold.",
        )
    },
    topic(
        "link",
        "how offld gets into a build",
        "`offld links DIR` makes the names that compilers look for in the folder DIR.\n\
         What you have, and what you add to it:\n\n\
         clang with -fopenmp-targets=… or --offload-arch=…\n    \
         -B DIR\n\
         any clang link line, fat objects among its inputs\n    \
         --ld-path=DIR/ld.offld, or -fuse-ld=offld with DIR on PATH\n\
         gcc or g++ linking objects that clang compiled\n    \
         -B DIR, after offld links --as-ld DIR\n\
         cargo\n    \
         RUSTFLAGS=\"-Clinker=clang -Clink-arg=--ld-path=DIR/ld.offld\"\n\
         fat objects and no driver at all\n    \
         DIR/ld.offld in front of the ld line\n\n\
         A line with clang's offload flags takes -B, a line without them --ld-path=.\n\
         With both, LLVM's wrapper links the device code.\n\n\
         What a link does: --wrapper-verbose shows its commands, --dry-run runs none,\n\
         --wrapper-why says which archive members count, and --wrapper-time-trace=FILE\n\
         writes where the time went (`-Wl,` in front with a compiler driver).\n\
         `offld help ld.offld` and `offld help clang-linker-wrapper` list the options.",
    ),
    Topic {
        options: &["wrapper-distribute", "wrapper-lto-partitions"],
        variables: |variable| ["OFFLD_DISTRIBUTE", "OFFLD_LTO_PARTITIONS"].contains(&variable.name),
        ..topic(
            "lto",
            "link-time optimization of device code: ThinLTO, and parts",
            "-foffload-lto=thin, at compile and at link time, optimizes each unit by itself:\n\
             after a change only the changed units are compiled, and those that import from\n\
             them. Full LTO (-foffload-lto) optimizes all units as one module, on one core\n\
             for each architecture; its code can be generated in parts.",
        )
    },
    Topic {
        options: &["wrapper-jobs", "wrapper-memory"],
        variables: |variable| {
            ["MAKEFLAGS", "OFFLD_MEMORY", "RAYON_NUM_THREADS"].contains(&variable.name) || variable.name == "XDG_RUNTIME_DIR"
        },
        ..topic(
            "memory",
            "how many device links run at once, and how much memory they take",
            "A device link begins when there is a slot for it (a core, a token of make's\n\
             jobserver, or what --wrapper-jobs= says), and when the memory that it will\n\
             take is free. What it takes is known from its last runs, else estimated. All\n\
             processes of a user count. A link beside which no other runs always may.",
        )
    },
    Topic {
        more: |_| PERSONALITIES.iter().fold(String::new(), |all, own| all + &row(own.name, own.about)),
        ..topic(
            "names",
            "the tools that offld stands in for",
            "offld is each of these tools by the name of its executable, or by its first\n\
             word: `offld ld …` is `ld.offld …`. `offld links DIR` makes the names.",
        )
    },
    topic(
        "selectors",
        "how devices are named: prune, size, check",
        "[KIND:][TRIPLE:]ARCH[:FEATURES]; each part that is left out means any, and\n\
         several with commas between them mean all of them together.\n\n\
         KIND      openmp, cuda, hip, sycl\n\
         TRIPLE    as images spell it, or its first component: amdgcn, x86_64\n\
         ARCH      gfx90a, sm_90, x86-64-v3; * ? [abc] stand for others: gfx9*, sm_[67]?\n          \
         cpu is any processor, native is what this machine has\n\
         FEATURES  xnack+, sramecc-: only images for these; without, images for any\n\n\
         gfx90a        gfx90a, and gfx90a:xnack+ as well\n\
         gfx90a:xnack+ only what was built for xnack+\n\
         hip:gfx9*     HIP's images for gfx900, gfx90a, gfx942 …\n\
         cuda:sm_90    CUDA's, and not OpenMP's\n\
         amdgcn        all for AMD's GPUs\n\n\
         `offld check --for` takes devices, not patterns: gfx90a:xnack+, sm_120, native.",
    ),
];

impl Topic {
    /// All of it, as a terminal shows it. `command` is the command line of offld.
    pub(super) fn render(&self, command: &clap::Command) -> String {
        let mut text = format!("{}\n", self.text);
        let options = self.options.iter().filter_map(|name| own_rows().iter().find(|row| row.name == *name));
        let options: String = options.map(|option| row(&spelling(option), option.help)).collect();
        let variables: String =
            VARIABLES.iter().filter(|own| (self.variables)(own)).map(|variable| row(variable.name, variable.help)).collect();
        for (title, rows) in [("", (self.more)(command)), ("Options of links:\n", options), ("Variables:\n", variables)] {
            if !rows.is_empty() {
                text.push_str(&format!("\n{title}{rows}"));
            }
        }
        text
    }
}

/// The paragraph of each command's help that says what its exit status means.
fn exit_statuses(command: &clap::Command) -> String {
    let of = |own: &clap::Command| {
        let help = own.get_after_help()?.to_string();
        let paragraph = help.split("\n\n").find_map(|paragraph| paragraph.strip_prefix("Exit status: ").map(str::to_owned))?;
        Some(row(own.get_name(), &paragraph))
    };
    command.get_subcommands().filter_map(of).collect()
}

/// A row of two columns; the second is broken into lines.
pub(super) fn row(name: &str, text: &str) -> String {
    let mut lines = vec![format!("  {name}")];
    if lines[0].chars().count() + 2 > COLUMN {
        lines.push(String::new());
    }
    for word in text.split_whitespace() {
        let last = lines.last_mut().map(|line| (line.chars().count(), line));
        match last {
            Some((length, line)) if length + 1 + word.chars().count() <= WIDTH => {
                line.push_str(&" ".repeat(COLUMN.saturating_sub(length).max(1)));
                line.push_str(word);
            }
            _ => lines.push(format!("{}{word}", " ".repeat(COLUMN))),
        }
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Selector;

    #[test]
    fn topics_are_whole() {
        assert!(TOPICS.is_sorted_by_key(|topic| topic.name));
        let command = clap::Command::new("offld");
        for topic in TOPICS {
            for name in topic.options {
                assert!(own_rows().iter().any(|row| row.name == *name && !row.help.is_empty()), "{}: --{name}", topic.name);
            }
            for line in topic.render(&command).lines() {
                assert!(line.chars().count() <= WIDTH || !line.contains(' '), "{}: {line}", topic.name);
            }
        }
    }

    #[test]
    fn the_selectors_of_the_topic_are_selectors() {
        let topic = TOPICS.iter().find(|topic| topic.name == "selectors");
        let paragraphs: Vec<&str> = topic.map(|topic| topic.text.split("\n\n").collect()).unwrap_or_default();
        let examples: Vec<&str> = paragraphs[2].lines().filter_map(|line| line.split_whitespace().next()).collect();
        assert_eq!(examples.len(), 5);
        for example in examples {
            assert!(example.parse::<Selector>().is_ok(), "{example}");
        }
    }

    #[test]
    fn rows_are_broken_where_they_must_be() {
        assert_eq!(row("a", "b c"), format!("  a{}b c\n", " ".repeat(26)));
        let long = row("a-name-that-fills-the-first-column", "text");
        assert_eq!(long, format!("  a-name-that-fills-the-first-column\n{}text\n", " ".repeat(29)));
        let lines = row("a", &"word ".repeat(30));
        assert!(lines.lines().count() == 3 && lines.lines().all(|line| line.len() <= WIDTH && line.len() > 40), "{lines}");
    }
}
