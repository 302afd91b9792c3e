//! GNU ld's long options and their abbreviations. GNU ld accepts every unique prefix of a long
//! name, with one dash or two; no other linker does. All code that looks for a GNU ld option by
//! name calls this module.

/// The long names of GNU ld 2.30 to 2.45 for ELF, ordered. The list includes options for other
/// architectures: an option that one release does not know may make another release's abbreviation
/// ambiguous. Options for Windows programs are missing, and so is `sysroot`: GNU ld searches its
/// command line for `--sysroot=` before it parses options, and ignores any other spelling.
const NAMES: [&str; 238] = [
    "Bdynamic",
    "Bgroup",
    "Bno-symbolic",
    "Bshareable",
    "Bstatic",
    "Bsymbolic",
    "Bsymbolic-functions",
    "EB",
    "EL",
    "Map",
    "Qy",
    "Tbss",
    "Tdata",
    "Tldata-segment",
    "Trodata-segment",
    "Ttext",
    "Ttext-segment",
    "Ur",
    "accept-unknown-input-arch",
    "add-needed",
    "allow-multiple-definition",
    "allow-shlib-undefined",
    "architecture",
    "as-needed",
    "assert",
    "audit",
    "auxiliary",
    "be8",
    "build-id",
    "call_shared",
    "check-sections",
    "cmse-implib",
    "compress-debug-sections",
    "copy-dt-needed-entries",
    "cref",
    "ctf-share-types",
    "ctf-variables",
    "dT",
    "dc",
    "default-imported-symver",
    "default-script",
    "default-symver",
    "defsym",
    "demangle",
    "depaudit",
    "dependency-file",
    "disable-linker-version",
    "disable-multiple-abs-defs",
    "disable-new-dtags",
    "discard-all",
    "discard-locals",
    "discard-none",
    "dn",
    "dp",
    "dy",
    "dynamic-linker",
    "dynamic-list",
    "dynamic-list-cpp-new",
    "dynamic-list-cpp-typeinfo",
    "dynamic-list-data",
    "eh-frame-hdr",
    "embedded-relocs",
    "emit-relocs",
    "enable-linker-version",
    "enable-new-dtags",
    "enable-non-contiguous-regions",
    "enable-non-contiguous-regions-warnings",
    "end-group",
    "entry",
    "error-execstack",
    "error-handling-script",
    "error-rwx-segments",
    "error-unresolved-symbols",
    "exclude-libs",
    "export-dynamic",
    "export-dynamic-symbol",
    "export-dynamic-symbol-list",
    "fatal-warnings",
    "filter",
    "fini",
    "fix-arm1176",
    "fix-cortex-a53-835769",
    "fix-cortex-a53-843419",
    "fix-cortex-a8",
    "fix-stm32l4xx-629360",
    "fix-v4bx",
    "fix-v4bx-interworking",
    "flto",
    "flto-partition",
    "force-exe-suffix",
    "force-group-allocation",
    "format",
    "fuse-ld",
    "gc-keep-exported",
    "gc-sections",
    "gpsize",
    "hash-size",
    "hash-style",
    "help",
    "ignore-unresolved-symbol",
    "image-base",
    "in-implib",
    "init",
    "just-symbols",
    "ld-generated-unwind-info",
    "library",
    "library-path",
    "long-plt",
    "map-whole-files",
    "max-cache-size",
    "merge-exidx-entries",
    "mri-script",
    "nmagic",
    "no-accept-unknown-input-arch",
    "no-add-needed",
    "no-allow-shlib-undefined",
    "no-apply-dynamic-relocs",
    "no-as-needed",
    "no-check-sections",
    "no-copy-dt-needed-entries",
    "no-ctf-variables",
    "no-define-common",
    "no-demangle",
    "no-dynamic-linker",
    "no-eh-frame-hdr",
    "no-enum-size-warning",
    "no-error-execstack",
    "no-error-rwx-segments",
    "no-export-dynamic",
    "no-fatal-warnings",
    "no-fix-arm1176",
    "no-gc-sections",
    "no-keep-memory",
    "no-ld-generated-unwind-info",
    "no-map-whole-files",
    "no-merge-exidx-entries",
    "no-omagic",
    "no-pie",
    "no-print-gc-sections",
    "no-print-map-discarded",
    "no-print-map-locals",
    "no-relax",
    "no-rosegment",
    "no-strip-discarded",
    "no-undefined",
    "no-undefined-version",
    "no-warn-execstack",
    "no-warn-execstack-objects",
    "no-warn-mismatch",
    "no-warn-rwx-segments",
    "no-warn-search-mismatch",
    "no-warnings",
    "no-wchar-size-warning",
    "no-whole-archive",
    "noinhibit-exec",
    "non_shared",
    "nostdlib",
    "oformat",
    "omagic",
    "orphan-handling",
    "out-implib",
    "output",
    "package-metadata",
    "pic-executable",
    "pic-veneer",
    "pie",
    "plugin",
    "plugin-opt",
    "pop-state",
    "print-gc-sections",
    "print-map",
    "print-map-discarded",
    "print-map-locals",
    "print-memory-usage",
    "print-output-format",
    "print-sysroot",
    "push-state",
    "qmagic",
    "reduce-memory-overheads",
    "relax",
    "relocatable",
    "relocateable",
    "remap-inputs",
    "remap-inputs-file",
    "require-defined",
    "retain-symbols-file",
    "rosegment",
    "rpath",
    "rpath-link",
    "script",
    "section-ordering-file",
    "section-start",
    "shared",
    "soname",
    "sort-common",
    "sort-section",
    "sort_common",
    "spare-dynamic-tags",
    "split-by-file",
    "split-by-reloc",
    "start-group",
    "static",
    "stats",
    "strip-all",
    "strip-debug",
    "strip-discarded",
    "stub-group-size",
    "target-help",
    "target1-abs",
    "target1-rel",
    "target2",
    "task-link",
    "trace",
    "trace-symbol",
    "traditional-format",
    "undefined",
    "undefined-version",
    "unique",
    "unresolved-symbols",
    "use-blx",
    "verbose",
    "version",
    "version-exports-section",
    "version-script",
    "vfp11-denorm-fix",
    "warn-alternate-em",
    "warn-common",
    "warn-constructors",
    "warn-execstack",
    "warn-execstack-objects",
    "warn-multiple-gp",
    "warn-once",
    "warn-rwx-segments",
    "warn-section-align",
    "warn-textrel",
    "warn-unresolved-symbols",
    "whole-archive",
    "wrap",
];

/// Returns the names of the options that `word` may abbreviate. There are several if the meaning
/// depends on the release, or if GNU ld rejects the abbreviation. The result is empty for a full
/// name, a letter with its value, or text that is not an option.
pub(crate) fn abbreviated(word: &str) -> &'static [&'static str] {
    let Some(name) = word.strip_prefix('-') else {
        return &[];
    };
    let (name, one_dash) = match name.strip_prefix('-') {
        Some(name) => (name, false),
        None => (name, true),
    };
    let name = name.split('=').next().unwrap_or_default();
    // `-l` is always a library, and one letter is an option of its own.
    if name.is_empty() || (one_dash && (name.len() == 1 || name.starts_with('l'))) {
        return &[];
    }
    let first = NAMES.partition_point(|known| *known < name);
    let found = NAMES.get(first..).unwrap_or_default();
    let count = found
        .iter()
        .take_while(|known| known.starts_with(name))
        .count();
    match found.get(..count) {
        Some([exact, ..]) if *exact == name => &[],
        Some(names) => names,
        None => &[],
    }
}

/// Replaces an abbreviation in `word` with the option's full name: `--library-path=L1` for
/// `--library-pa=L1`. If the abbreviation is ambiguous, the error names all candidates.
pub(crate) fn spelled_out(word: &str) -> Result<Option<String>, String> {
    match abbreviated(word) {
        [] => Ok(None),
        [name] => Ok(Some(format!(
            "--{name}{}",
            word.find('=').map_or("", |equals| &word[equals..])
        ))),
        names => Err(format!(
            "ambiguous option `{word}`: expected --{}",
            names.join(" or --")
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_order() {
        assert!(NAMES.is_sorted());
    }

    #[test]
    fn unique_prefixes_are_spelled_out_and_full_names_are_not() {
        for (word, expected) in [
            ("--library-pa=L1", "--library-path=L1"),
            ("--library-pa", "--library-path"),
            ("--Ma=m.txt", "--Map=m.txt"),
            ("-Ma=m.txt", "--Map=m.txt"),
            ("--M", "--Map"),
            ("--out-imp=m.txt", "--out-implib=m.txt"),
            ("--verb", "--verbose"),
            ("--trace-s=helper", "--trace-symbol=helper"),
            ("--version-scr=a=b", "--version-script=a=b"),
        ] {
            assert_eq!(
                spelled_out(word).unwrap().as_deref(),
                Some(expected),
                "{word}"
            );
        }
        for word in [
            "--library",
            "--library-path=x",
            "-M",
            "-Map=x",
            "-lib",
            "-library-pa=L1",
            "-Ldir",
            "-o",
            "--",
            "-",
            "a.o",
            "-z",
            "--sysr=/x",
        ] {
            assert_eq!(spelled_out(word), Ok(None), "{word}");
        }
        for word in ["--dep=x", "--tr", "--rpa=/x", "-e", "--e"] {
            assert_eq!(spelled_out(word).is_err(), word != "-e", "{word}");
        }
    }
}
