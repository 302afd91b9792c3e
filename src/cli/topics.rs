//! The topics of `offld help TOPIC` and the manual page of topics. A topic is a text, followed by
//! rows from the tables of options, environment variables, commands and tools. The texts do not
//! repeat those tables.

use super::EMULATED_TOOLS;
use super::environment::{VARIABLES, Variable};
use super::tool_help::spelling;
use crate::args::own_rows;

/// The assumed width of a screen, in columns.
pub(super) const WIDTH: usize = 80;
/// The start of a table's second column. A longer first column gets a separate line.
const COLUMN: usize = 29;

/// A subject that does not belong to a single command.
pub(super) struct Topic {
    /// The argument after `offld help`.
    pub(super) name: &'static str,
    /// One line for the list of topics.
    pub(super) about: &'static str,
    /// The text; lines of at most [`WIDTH`] columns.
    pub(super) text: &'static str,
    /// The related options of links, without dashes.
    options: &'static [&'static str],
    /// Selects the related environment variables.
    variables: fn(&Variable) -> bool,
    /// Returns further rows, from other tables.
    more: fn(&clap::Command) -> String,
}

/// A topic that consists of text alone.
const fn topic(name: &'static str, about: &'static str, text: &'static str) -> Topic {
    Topic {
        name,
        about,
        text,
        options: &[],
        variables: |_| false,
        more: |_| String::new(),
    }
}

/// All topics, ordered by name.
pub(super) const TOPICS: &[Topic] = &[
    Topic {
        options: &["wrapper-cache", "wrapper-verbose"],
        variables: |variable| {
            variable.name.starts_with("OFFLD_CACHE") || variable.name == "XDG_CACHE_HOME"
        },
        ..topic(
            "cache",
            "the cache of device links",
            "A device link takes its image from the cache if its device code, arguments,\n\
             tools and environment are unchanged. A program with such images also takes\n\
             its registration code from the cache. The cache is on by default, with a limit\n\
             of 5 GiB. offld relinks entries that it cannot read, and skips writes that fail.\n\n\
             --wrapper-verbose reports a cache hit, or the cause of the miss, for each\n\
             device link; `offld cache stats` prints totals; `offld explain` reads the log.",
        )
    },
    Topic {
        options: &[
            "wrapper-launcher",
            "wrapper-launcher-wait",
            "wrapper-remote-jobs",
            "wrapper-distribute",
        ],
        variables: |variable| {
            ["OFFLD_LAUNCHER", "OFFLD_REMOTE_JOBS", "OFFLD_SHARED_TMP"]
                .iter()
                .any(|start| variable.name.starts_with(start))
        },
        ..topic(
            "cluster",
            "device links on other machines, with Slurm, SSH and others",
            "A launcher is a command that runs the arguments after its own as a command on\n\
             another machine, and exits when that command has ended:\n\n  \
             export OFFLD_LAUNCHER='srun -Q -n1 -c{threads} --mem={mem}M -J {job}'\n  \
             export OFFLD_LAUNCHER='ssh far'\n\n\
             Only device links and ThinLTO translation units run there. Cache hits, the\n\
             host link and all queries to the compiler stay on this machine. All machines\n\
             must see the compiler and the directory for temporary files at the same\n\
             paths. If a job does not start, or a machine fails, this machine runs the job,\n\
             and offld prints a warning.",
        )
    },
    Topic {
        variables: |_| true,
        ..topic(
            "environment",
            "all environment variables that offld reads",
            "If an option sets the same value, the option takes precedence.",
        )
    },
    Topic {
        more: exit_statuses,
        ..topic(
            "exit-status",
            "the exit status of each command",
            "Links and emulated tools: the status of the program that failed, 128+N if\n\
             signal N ended that program or offld, 1 for all other errors.\n\
             Commands that are not in this list: 0, or 2 after an error.",
        )
    },
    Topic {
        variables: |variable| {
            [
                "HOME",
                "OFFLD_CACHE",
                "OFFLD_CACHE_LOG",
                "OFFLD_REPRODUCE",
                "OFFLD_SHARED_TMP",
                "TMPDIR",
            ]
            .contains(&variable.name)
                || variable.name.starts_with("XDG_")
        },
        ..topic(
            "files",
            "files that offld writes in addition to its outputs",
            "The cache        XDG_CACHE_HOME/offld, else ~/.cache/offld; `offld cache path`\n\
             Temporary files  a directory in TMPDIR for each link, removed at its end; with\n                 \
             a launcher next to the output, or in OFFLD_SHARED_TMP\n\
             Running links    XDG_RUNTIME_DIR/offld, else offld-UID in TMPDIR: a file for\n                 \
             each process with device links; the last process removes the\n                 \
             directory\n\n\
             offld writes complete outputs or none. There is no configuration file.",
        )
    },
    Topic {
        options: &["wrapper-late-images", "wrapper-verbose"],
        variables: |variable| variable.name == "OFFLD_LATE_IMAGES",
        ..topic(
            "late-images",
            "host links in parallel with device links",
            "A host link needs only the locations of the device images. A late link runs\n\
             the host link in parallel with the device links, with 48 bytes in place of\n\
             each image, and inserts the images into the program when both are done.\n\
             Images can have any size, because no linker reads them.\n\n\
             auto  if possible, for at least 4 MiB of device code in the inputs\n\
             on    if possible; otherwise --wrapper-verbose prints the reason\n\
             off   never\n\n\
             Late links are not possible with -r, linker scripts, link maps, or linkers\n\
             other than ld.lld, GNU ld, gold, mold and wild.",
        )
    },
    topic(
        "link",
        "how to use offld in a build",
        "`offld links DIR` creates the tool links in DIR: symlinks named like LLVM's\n\
         tools. Find your build in this list, and add the arguments below it:\n\n\
         clang with -fopenmp-targets=… or --offload-arch=…\n    \
         -B DIR\n\
         clang without offload flags, linking fat objects\n    \
         --ld-path=DIR/ld.offld, or -fuse-ld=offld with DIR on PATH\n\
         gcc or g++ linking objects that clang compiled\n    \
         -B DIR, after offld links --as-ld DIR\n\
         cargo\n    \
         RUSTFLAGS=\"-Clinker=clang -Clink-arg=--ld-path=DIR/ld.offld\"\n\
         ld without a compiler driver, linking fat objects\n    \
         DIR/ld.offld in place of ld\n\n\
         With clang's offload flags, pass -B DIR. If you pass only --ld-path= with these\n\
         flags, LLVM's wrapper links the device code.\n\n\
         --wrapper-verbose prints the commands of a link, --dry-run prints them and runs\n\
         none, --wrapper-why prints which archive members are linked, and\n\
         --wrapper-time-trace=FILE writes a time trace. With a compiler driver, prefix\n\
         each of these options with `-Wl,`.\n\
         `offld help ld.offld` and `offld help clang-linker-wrapper` list all options.",
    ),
    Topic {
        options: &["wrapper-distribute", "wrapper-lto-partitions"],
        variables: |variable| ["OFFLD_DISTRIBUTE", "OFFLD_LTO_PARTITIONS"].contains(&variable.name),
        ..topic(
            "lto",
            "link-time optimization of device code: ThinLTO, partitions",
            "-foffload-lto=thin, at compile time and at link time, optimizes each translation\n\
             unit separately. After a change, only the changed units and those that import\n\
             from them are compiled. Full LTO (-foffload-lto) optimizes all units of an\n\
             architecture as one module, on one core; its code generation can be split into\n\
             parallel partitions.",
        )
    },
    Topic {
        options: &["wrapper-jobs", "wrapper-memory"],
        variables: |variable| {
            ["MAKEFLAGS", "OFFLD_MEMORY", "RAYON_NUM_THREADS"].contains(&variable.name)
                || variable.name == "XDG_RUNTIME_DIR"
        },
        ..topic(
            "memory",
            "limits on parallel device links and their memory",
            "A device link starts when a slot is free (a core, a token of make's jobserver,\n\
             or one of the --wrapper-jobs= slots) and enough memory is free. offld knows\n\
             the required memory from the last runs of the link, or estimates it. The limits\n\
             apply to all offld processes of a user. A device link that would run alone\n\
             always starts.",
        )
    },
    Topic {
        more: |_| {
            EMULATED_TOOLS
                .iter()
                .fold(String::new(), |all, own| all + &row(own.name, own.about))
        },
        ..topic(
            "names",
            "the tools that offld emulates",
            "offld acts as one of these tools if its executable has the name of the tool, or\n\
             if the name is its first argument: `offld ld …` is `ld.offld …`.\n\
             `offld links DIR` creates symlinks with these names.",
        )
    },
    topic(
        "selectors",
        "device patterns, for prune and size",
        "[KIND:][TRIPLE:]ARCH[:FEATURES]; an absent part matches any value. Separate\n\
         several patterns with commas: an image is selected if one of them matches.\n\n\
         KIND      openmp, cuda, hip, sycl\n\
         TRIPLE    a triple in any spelling, or its first component: amdgcn, x86_64\n\
         ARCH      gfx90a, sm_90, x86-64-v3; * ? [abc] as in file names: gfx9*, sm_[67]?\n          \
         cpu matches any CPU, native the devices of this machine\n\
         FEATURES  xnack+, sramecc-: only images that require them\n\n\
         gfx90a        gfx90a and gfx90a:xnack+\n\
         gfx90a:xnack+ only images that require xnack+\n\
         hip:gfx9*     HIP images for gfx900, gfx90a, gfx942 …\n\
         cuda:sm_90    CUDA images, but no OpenMP images\n\
         amdgcn        all AMD GPU images\n\n\
         `offld check --for` takes devices, not patterns: gfx90a:xnack+, sm_120, native.",
    ),
];

impl Topic {
    /// Formats the topic for a terminal. `command` is offld's command line.
    pub(super) fn render(&self, command: &clap::Command) -> String {
        let mut text = format!("{}\n", self.text);
        let options = self
            .options
            .iter()
            .filter_map(|name| own_rows().iter().find(|row| row.name == *name));
        let options: String = options
            .map(|option| row(&spelling(option), option.help))
            .collect();
        let variables: String = VARIABLES
            .iter()
            .filter(|own| (self.variables)(own))
            .map(|variable| row(variable.name, variable.help))
            .collect();
        for (title, rows) in [
            ("", (self.more)(command)),
            ("Link options:\n", options),
            ("Environment variables:\n", variables),
        ] {
            if !rows.is_empty() {
                text.push_str(&format!("\n{title}{rows}"));
            }
        }
        text
    }
}

/// Collects the paragraph about exit statuses from each command's help.
fn exit_statuses(command: &clap::Command) -> String {
    let status_row = |own: &clap::Command| {
        let help = own.get_after_help()?.to_string();
        let paragraph = help
            .split("\n\n")
            .find_map(|paragraph| paragraph.strip_prefix("Exit status: ").map(str::to_owned))?;
        Some(row(own.get_name(), &paragraph))
    };
    command.get_subcommands().filter_map(status_row).collect()
}

/// Formats a row of two columns and wraps the second.
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
    use offload_formats::target::Selector;

    #[test]
    fn topics_are_sorted_and_refer_to_existing_options() {
        assert!(TOPICS.is_sorted_by_key(|topic| topic.name));
        let command = clap::Command::new("offld");
        for topic in TOPICS {
            for name in topic.options {
                assert!(
                    own_rows()
                        .iter()
                        .any(|row| row.name == *name && !row.help.is_empty()),
                    "{}: --{name}",
                    topic.name
                );
            }
            for line in topic.render(&command).lines() {
                assert!(
                    line.chars().count() <= WIDTH || !line.contains(' '),
                    "{}: {line}",
                    topic.name
                );
            }
        }
    }

    #[test]
    fn the_examples_of_selectors_are_valid() {
        let topic = TOPICS.iter().find(|topic| topic.name == "selectors");
        let paragraphs: Vec<&str> = topic
            .map(|topic| topic.text.split("\n\n").collect())
            .unwrap_or_default();
        let examples: Vec<&str> = paragraphs[2]
            .lines()
            .filter_map(|line| line.split_whitespace().next())
            .collect();
        assert_eq!(examples.len(), 5);
        for example in examples {
            assert!(example.parse::<Selector>().is_ok(), "{example}");
        }
    }

    #[test]
    fn long_rows_are_wrapped() {
        assert_eq!(row("a", "b c"), format!("  a{}b c\n", " ".repeat(26)));
        let long = row("a-name-that-fills-the-first-column", "text");
        assert_eq!(
            long,
            format!(
                "  a-name-that-fills-the-first-column\n{}text\n",
                " ".repeat(29)
            )
        );
        let lines = row("a", &"word ".repeat(30));
        assert!(
            lines.lines().count() == 3
                && lines
                    .lines()
                    .all(|line| line.len() <= WIDTH && line.len() > 40),
            "{lines}"
        );
    }
}
