//! The topics of `offld help TOPIC` and the manual page of topics. A topic is a text, followed by
//! rows from the tables of options, environment variables, commands and tools. The texts do not
//! repeat those tables.

use super::EMULATED_TOOLS;
use super::environment::{VARIABLES, Variable};
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
            "offld reuses a cached device image if the device code, arguments, tools and\n\
             environment of the device link are unchanged. For unchanged images, offld\n\
             reuses the cached registration code. The cache is on by default, with a limit\n\
             of 5 GiB. offld rebuilds unreadable entries, and skips failed writes.\n\n\
             --wrapper-verbose reports a cache hit or the cause of a miss for each device\n\
             link. `offld cache stats` prints totals. `offld explain` reads the build log.",
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
            "device links on other machines, through Slurm, SSH or another launcher",
            "A launcher runs a command on another machine, and exits when the command has\n\
             ended. offld appends the command to the arguments of the launcher:\n\n  \
             export OFFLD_LAUNCHER='srun -Q -n1 -c{threads} --mem={mem}M -J {job}'\n  \
             export OFFLD_LAUNCHER='ssh far'\n\n\
             Only device links and ThinLTO translation units run on other machines. Cache\n\
             hits, the host link and all queries to the compiler stay on this machine. All\n\
             machines must see the compiler and the directory for temporary files at the\n\
             same paths. If a job does not start, or another machine fails, offld prints a\n\
             warning and runs the job on this machine.",
        )
    },
    Topic {
        variables: |_| true,
        ..topic(
            "environment",
            "all environment variables that offld reads",
            "Options take precedence over environment variables.",
        )
    },
    Topic {
        more: exit_statuses,
        ..topic(
            "exit-status",
            "the exit status of each command",
            "Links and emulated tools: 0 on success; the status of a program that failed;\n\
             128+N if signal N ended that program or offld; 1 for all other errors.\n\
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
             Temporary files  a directory for each link, removed when the link ends: in\n                 \
             TMPDIR, or with a launcher, next to the output or in\n                 \
             OFFLD_SHARED_TMP\n\
             Running links    XDG_RUNTIME_DIR/offld, else offld-UID in TMPDIR: a file for\n                 \
             each process with device links; the last process removes the\n                 \
             directory\n\n\
             offld writes each output completely or not at all. offld reads no configuration\n\
             file.",
        )
    },
    Topic {
        options: &["wrapper-late-images", "wrapper-verbose"],
        variables: |variable| variable.name == "OFFLD_LATE_IMAGES",
        ..topic(
            "late-images",
            "host links in parallel with device links",
            "A late link runs the host link in parallel with the device links. The host\n\
             link uses 48 bytes in place of each device image. When all these links are\n\
             done, offld inserts the images into the program. Images can have any size,\n\
             because the host linker does not read the images.\n\n\
             --wrapper-late-images= selects the links that are late:\n\n\
             auto  all possible links with at least 4 MiB of device code in the inputs\n\
             on    all possible links; --wrapper-verbose prints why a link is not late\n\
             off   no links\n\n\
             Late links are not possible with -r, linker scripts, link maps, or linkers\n\
             other than ld.lld, GNU ld, gold, mold and wild.",
        )
    },
    topic(
        "link",
        "how to use offld in a build",
        "`offld links DIR` creates the tool links in DIR: symlinks named like LLVM's\n\
         tools. Find your build in this list, and add the arguments on the next line:\n\n\
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
         With clang's offload flags, pass -B DIR. With these flags and only --ld-path=,\n\
         LLVM's wrapper links the device code.\n\n\
         --wrapper-verbose prints the commands of a link. --dry-run prints the commands\n\
         without running them. --wrapper-why prints which archive members are linked.\n\
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
             unit separately. After a change, offld compiles only the changed units, and\n\
             units that import from a changed unit. Full LTO (-foffload-lto) optimizes all\n\
             units of an architecture as one module, on one core. Full-LTO code generation\n\
             can be split into parallel partitions.",
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
             or one of the --wrapper-jobs= slots) and enough memory is free. offld\n\
             predicts the memory from earlier runs of the link or, without earlier runs,\n\
             from the size of the device code. The limits apply to all offld processes of a\n\
             user. If no other device link is running, a device link always starts.",
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
            "offld acts as one of these tools if the executable or the first argument has\n\
             the name of the tool: `offld ld …` is `ld.offld …`.\n\
             `offld links DIR` creates symlinks named like the tools.",
        )
    },
    topic(
        "policies",
        "policies for gate",
        "A policy is a TOML file with `version = 1` and rules, such as:\n\n  \
         version = 1\n\n  \
         [[rule]]\n  \
         files = \"*.whl\"\n  \
         checks = [\"registered\", \"compressed\"]\n  \
         require = [\"gfx90a\", \"sm_90\"]\n  \
         max-size = { total = \"850M\", gfx90a = \"120M\" }\n\n\
         name        name in reports\n\
         files       patterns of files and members; default: all files\n\
         exclude     patterns of files and members to skip\n\
         checks      any of the checks below\n\
         require     device patterns, each of which matches an image\n\
         forbid      device patterns that match no image\n\
         only        device patterns, one of which matches each image\n\
         runs-on     devices that the file runs on, as for `offld check --for`\n\
         ptx-floor   version of PTX, such as compute_80; there is this or an earlier one\n\
         max-driver  major version of NVIDIA's driver that reads all images\n\
         max-rocm    latest version of ROCm that an image may need, such as \"6.4\"\n\
         max-size    limits: total, inflated (decompressed), host, device patterns\n\
         max-growth  limits for growth since --baseline: numbers, or \"2%\"; also for\n            \
         numbers of `offld diff` such as registers, spills, occupancy\n\n\
         Checks:\n\n\
         device-code      the file has device code\n\
         registered       `offld check` has no finding `no` or `unknown`\n\
         compressed       images in HIP bundles and CUDA fatbinaries are compressed\n\
         no-debug-info    no image has debug information\n\
         no-duplicates    the file has no image twice\n\
         no-lost-kernels  each kernel and architecture of --baseline is there\n\
         wheel-tags       the tags of a wheel describe its contents\n\n\
         `offld gate --init FILE` prints a policy for a good build.",
    ),
    topic(
        "selectors",
        "device patterns, for prune and size",
        "[KIND:][TRIPLE:]ARCH[:FEATURES]; an absent part matches any value. Separate\n\
         patterns with commas. An image is selected if at least one pattern matches.\n\n\
         KIND      openmp, cuda, hip, sycl\n\
         TRIPLE    a triple in any spelling, or its first component: amdgcn, x86_64\n\
         ARCH      gfx90a, sm_90, x86-64-v3; * ? [abc] as in file names: gfx9*, sm_[67]?\n          \
         cpu matches any CPU; native matches the devices of this machine\n\
         FEATURES  xnack+, sramecc-; matches images that require all listed features\n\n\
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
            .map(|option| row(&option.spelling(), option.help))
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
