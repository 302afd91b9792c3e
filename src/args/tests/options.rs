//! Tests of the settings that each of offld's options changes, in both roles.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStringExt;

use super::super::settings::{
    BitcodeLibrary, Destination, Distribute, Env, Jobs, KernelNames, LateImages, LlvmOption,
    LtoPartitions, MemoryLimit, Named,
};
use super::super::{Id, Route, own_rows};
use super::*;

type Check = fn(&LinkSettings) -> bool;

/// An example of each option, and a check of the resulting settings.
const CASES: &[(&str, Check)] = &[
    (
        "--bitcode-library=openmp-amdgcn-amd-amdhsa-gfx90a=lib.bc",
        |r| {
            r.device.bitcode_libraries[0].is_for("openmp", "amdgcn-amd-amdhsa", "gfx90a")
                && r.device.bitcode_libraries[0].path == *"lib.bc"
        },
    ),
    ("--builtin-bitcode=nvptx64-nvidia-cuda=d.bc", |r| {
        r.device.builtin_bitcode[0].for_triple("nvptx64-nvidia-cuda") == Some(OsStr::new("d.bc"))
    }),
    ("--clang-backend", |r| r.inputs.is_empty()),
    ("--compress", |r| r.device.compress),
    ("--compression-level=9", |r| {
        r.device.compression_level.as_deref() == Some("9")
    }),
    ("--cuda-path=/c", |r| {
        r.device.cuda_path == Some("/c".into())
    }),
    ("--device-compiler=-O3", |r| {
        r.device.device_compiler[0].for_triple("amdgcn-amd-amdhsa") == Some(OsStr::new("-O3"))
    }),
    ("--device-debug", |r| r.device.device_debug),
    ("--device-linker=amdgcn-amd-amdhsa=-x", |r| {
        r.device.device_linker[0]
            .for_triple("nvptx64-nvidia-cuda")
            .is_none()
    }),
    ("--dry-run", |r| r.run.dry_run),
    ("--embed-bitcode", |r| r.device.embed_bitcode),
    ("--emit-fatbin-only", |r| r.emit_fatbin_only),
    ("--help a.o", |r| r.inputs.len() == 1),
    ("--help-hidden a.o", |r| r.inputs.len() == 1),
    ("--host-triple=aarch64-linux-gnu", |r| {
        r.host.host_triple.as_deref() == Some("aarch64-linux-gnu")
    }),
    ("-host-triple aarch64-linux-gnu", |r| {
        r.host.host_triple.as_deref() == Some("aarch64-linux-gnu") && r.inputs.is_empty()
    }),
    ("--linker-path=/usr/bin/ld", |r| {
        r.host.linker_path == Some("/usr/bin/ld".into())
    }),
    ("-linker-path /usr/bin/ld", |r| {
        r.host.linker_path == Some("/usr/bin/ld".into()) && r.inputs.is_empty()
    }),
    (
        "-mllvm -a --offload-opt=-b -offload-opt=-c -mllvm -d",
        |r| {
            let expected = ["-a", "-b", "-c", "-d"];
            r.device
                .llvm_options
                .iter()
                .map(LlvmOption::value)
                .eq(expected.map(OsStr::new))
                && r.device.llvm_options[3] == LlvmOption::Mllvm("-d".into())
        },
    ),
    ("--no-lto", |r| r.device.no_lto),
    ("--no-offld-note", |r| r.no_note),
    ("--wrapper-kpack", |r| r.kpack),
    ("--wrapper-external-images", |r| {
        r.external_images == Some(PathBuf::new())
    }),
    ("--wrapper-external-images=../share/images", |r| {
        r.external_images == Some("../share/images".into())
    }),
    ("--no-offload-runtime", |r| r.device.no_offload_runtime),
    ("--offld-clang=c --offld-linker=l", |r| {
        r.device.offld_clang == Some(Named::new("--offld-clang=", "c"))
            && r.host.offld_linker == Some(Named::new("--offld-linker=", "l"))
    }),
    (
        "--offld-sycl-registration=22 --offld-sycl-registration=24",
        |r| r.device.sycl_release == Some(24),
    ),
    ("--offload-opt=-x", |r| {
        r.device.llvm_options == [LlvmOption::OffloadOpt("-x".into())]
    }),
    ("--opt-level=O2", |r| {
        r.device.opt_level.as_deref() == Some("O2")
    }),
    ("--override-image=openmp=a=b.o", |r| {
        r.device.override_images == [("openmp".to_owned(), "a=b.o".into())]
    }),
    (
        "--pass-remarks=a --pass-remarks-analysis=b --pass-remarks-missed=c",
        |r| {
            let expected = [
                "-pass-remarks=a",
                "-pass-remarks-analysis=b",
                "-pass-remarks-missed=c",
            ];
            r.device
                .llvm_options
                .iter()
                .map(LlvmOption::value)
                .eq(expected.map(OsStr::new))
        },
    ),
    ("--print-wrapped-module", |r| r.run.print_wrapped_module),
    ("--ptxas-arg=-v -ptxas-args -w", |r| {
        r.device.ptxas_args == words("-v -w")
    }),
    ("--reproduce=r.tar", |r| {
        r.run.reproduce == Some(Destination::File("r.tar".into()))
    }),
    ("--reproduce r.tar", |r| {
        r.run.reproduce == Some(Destination::File("r.tar".into()))
    }),
    ("--save-temps", |r| r.run.save_temps),
    (
        "--should-extract=gfx908,gfx90a --should-extract=gfx908,,sm_80",
        |r| r.device.should_extract == ["gfx908", "gfx90a", "sm_80"],
    ),
    ("-strip-sections", |r| r.inputs.is_empty()),
    ("-target-embed-bc", |r| r.device.embed_bitcode),
    ("-target-feature amdgcn-amd-amdhsa=+xnack", |r| {
        r.device.target_features[0].for_triple("amdgcn-amd-amdhsa") == Some(OsStr::new("+xnack"))
    }),
    ("-target-library=openmp-t-a=p", |r| {
        r.device.bitcode_libraries
            == [BitcodeLibrary {
                target: "openmp-t-a".into(),
                path: "p".into(),
            }]
    }),
    ("-v -g -dry-run -save-temps -embed-bitcode -- a.o", |r| {
        r.run.verbose
            && r.device.device_debug
            && r.run.dry_run
            && r.run.save_temps
            && r.device.embed_bitcode
    }),
    ("--verbose -- a.o", |r| r.run.verbose),
    ("--version a.o", |r| r.inputs.len() == 1),
    ("--wrapper-cache=/c --wrapper-cache=off", |r| {
        r.cache.folder == Some(Named::new("--wrapper-cache", "off"))
    }),
    ("--wrapper-memory=1.5G", |r| {
        r.run.memory == MemoryLimit::Bytes(3 << 29).into()
    }),
    ("--wrapper-memory=8G --wrapper-memory=off", |r| {
        r.run.memory == MemoryLimit::Off.into()
    }),
    ("--wrapper-memory=auto", |r| {
        r.run.memory == MemoryLimit::Free.into()
    }),
    ("--wrapper-jobs=4", |r| r.run.jobs == Jobs::N(4)),
    ("--wrapper-jobs=4 --wrapper-jobs=JobServer", |r| {
        r.run.jobs == Jobs::Jobserver
    }),
    ("--wrapper-distribute", |r| {
        r.run.distribute == Distribute::On.into()
    }),
    ("--wrapper-distribute=on --wrapper-distribute=off", |r| {
        r.run.distribute == Distribute::Off.into()
    }),
    ("--wrapper-distribute=auto", |r| {
        r.run.distribute == Distribute::Auto.into()
    }),
    ("--wrapper-late-images=auto", |r| {
        r.run.late_images == LateImages::Auto.into()
    }),
    ("--wrapper-late-images=on", |r| {
        r.run.late_images == LateImages::On.into()
    }),
    ("--wrapper-late-images=on --wrapper-late-images=off", |r| {
        r.run.late_images == LateImages::Off.into()
    }),
    ("--wrapper-stable-names=objects", |r| {
        r.run.kernel_names == KernelNames::InObjects.into()
    }),
    ("--wrapper-stable-names=on", |r| {
        r.run.kernel_names == KernelNames::Stable.into()
    }),
    (
        "--wrapper-stable-names=on --wrapper-stable-names=off",
        |r| r.run.kernel_names == KernelNames::Clang.into(),
    ),
    ("--wrapper-launcher=srun --wrapper-launcher=", |r| {
        r.run.launching.launcher == Some(Named::new("--wrapper-launcher", ""))
    }),
    ("--wrapper-launcher=srun", |r| {
        r.run.launching.launcher == Some(Named::new("--wrapper-launcher", "srun"))
    }),
    ("--wrapper-launcher-wait=5", |r| {
        r.run.launching.wait == Some(5.into())
    }),
    ("--wrapper-remote-jobs=4 --wrapper-remote-jobs=8", |r| {
        r.run.launching.jobs == Some(8.into())
    }),
    ("--wrapper-lto-partitions=auto", |r| {
        r.device.lto_partitions == Some(LtoPartitions::Auto.into())
    }),
    (
        "--wrapper-lto-partitions=auto --wrapper-lto-partitions=4",
        |r| r.device.lto_partitions == Some(LtoPartitions::N(4).into()),
    ),
    (
        "--wrapper-time-trace=t --wrapper-time-trace-granularity=10",
        |r| {
            r.run.time_trace == Some(Destination::File("t".into()))
                && r.run.time_trace_granularity == 10
        },
    ),
    ("--wrapper-verbose", |r| r.run.verbose),
    ("--wrapper-why", |r| r.run.why),
];

#[test]
fn every_own_option_sets_something_and_stays_off_the_host_line() {
    let mut seen = BTreeSet::new();
    for (line, check) in CASES {
        let arguments = arguments(Role::Wrapper, line);
        let settings = LinkSettings::new(&arguments, &|_| None).expect(line);
        assert!(check(&settings), "{line}: {settings:?}");
        for arg in arguments
            .args()
            .iter()
            .filter_map(|arg| arg.id().map(|id| (id, arg.route)))
        {
            assert!(
                arg.1 == Route::Wrapper || matches!(arg.0, Id::Help | Id::Version),
                "{line}"
            );
            seen.insert(arg.0);
        }
    }
    let missing: Vec<_> = own_rows()
        .iter()
        .filter(|row| !seen.contains(&row.id))
        .map(|row| row.name)
        .collect();
    assert!(missing.is_empty(), "no case: {missing:?}");
}

#[test]
fn the_defaults() {
    let settings = settings("a.o");
    let mut expected = LinkSettings {
        inputs: settings.inputs.clone(),
        ..LinkSettings::default()
    };
    expected.run.time_trace_granularity = 500;
    assert_eq!(settings, expected);
    assert_eq!(settings.run.jobs, Jobs::Auto);
}

#[test]
fn an_option_wins_over_its_variable() {
    let arguments = |line: &str| arguments(Role::Ld, line);
    let both = |line: &str, variable: &str, value: &str| {
        let env: Env<'_> = &|name| (name == variable).then(|| value.into());
        LinkSettings::new(&arguments(line), env).expect(line)
    };
    let memory = |line: &str, value: &str| both(line, "OFFLD_MEMORY", value).run.memory.get();
    assert_eq!(memory("", "off").unwrap(), MemoryLimit::Off);
    assert_eq!(
        memory("--wrapper-memory=auto", "off").unwrap(),
        MemoryLimit::Free
    );
    // Only a link that needs the value fails.
    assert_eq!(
        memory("", "much").unwrap_err().to_string(),
        "OFFLD_MEMORY=much: expected auto, off or a size such as 8G"
    );
    assert_eq!(
        memory("--wrapper-memory=off", "much").unwrap(),
        MemoryLimit::Off
    );

    let clang = |line: &str| both(line, "OFFLD_CLANG", "v").device.offld_clang;
    assert_eq!(clang(""), Some(Named::new("OFFLD_CLANG", "v")));
    assert_eq!(
        clang("--offld-clang=o"),
        Some(Named::new("--offld-clang=", "o"))
    );

    let trace = |line: &str| both(line, "OFFLD_TIME_TRACE", "d").run.time_trace;
    assert_eq!(trace(""), Some(Destination::Directory("d".into())));
    assert_eq!(
        trace("--wrapper-time-trace=f"),
        Some(Destination::File("f".into()))
    );

    let verbose = |line: &str, value: &str| both(line, "OFFLD_VERBOSE", value).run.verbose;
    assert!(verbose("", "1") && verbose("--wrapper-verbose", "0") && !verbose("", "0"));
}

#[test]
fn mllvm_belongs_to_the_linker_if_offld_is_the_linker() {
    assert_eq!(
        host(Role::Ld, "-mllvm -x a.o -o y"),
        "-mllvm -x a.o -o y W -lR"
    );
    assert_eq!(host(Role::Wrapper, "-mllvm -x a.o -o y"), "a.o -o y W -lR");
    // LLVM's wrapper accepts only the form with a separate value; the joined form belongs to the
    // linker.
    assert_eq!(
        host(Role::Wrapper, "-mllvm=-x --mllvm -y a.o -o y"),
        "-mllvm=-x --mllvm -y a.o -o y W -lR"
    );
    let arguments = arguments(Role::Ld, "-mllvm -x a.o --save-temps --opt-level=O2");
    let settings = LinkSettings::new(&arguments, &|_| None).expect("a link");
    assert!(
        settings.device.llvm_options.is_empty()
            && settings.run.save_temps
            && settings.device.opt_level.is_none()
    );
    assert_eq!(
        joined(&arguments.host_line(&[], &[])),
        "-mllvm -x a.o --opt-level=O2"
    );
}

#[test]
fn only_the_separator_of_llvm_14_to_16_is_consumed() {
    assert_eq!(
        host(
            Role::Wrapper,
            "-host-triple t -v -linker-path ld -- -v -o x a.o"
        ),
        "-v -o x W a.o -lR"
    );
    assert_eq!(
        host(Role::Wrapper, "--linker-path=ld -o x -- a.o"),
        "-o x W -- a.o -lR"
    );
    assert_eq!(
        host(Role::Wrapper, "--linker-path=ld a.o -- -o x"),
        "a.o -- -o x W -lR"
    );
    assert_eq!(host(Role::Ld, "-- -o x a.o"), "-- -o x W a.o -lR");
    assert!(!settings("-o x -v a.o").run.verbose);
}

#[test]
fn link_exe_forms() {
    let line = "--host-triple=x86_64-pc-windows-msvc -OUT:r.exe /libpath:l -libpath:m /?libpath:n -opt:ref -entry:main /machine:x64 \
                -ltcg /defaultlib:libcmt x.obj /dir/y.obj /z.obj /wholearchive:a.lib b.lib";
    let settings = settings(line);
    assert_eq!(settings.output, Some("r.exe".into()));
    assert_eq!(
        settings.host.library_dirs,
        ["l", "m", "n"].map(PathBuf::from)
    );
    assert_eq!(settings.host.default_libraries, words("libcmt"));
    assert_eq!(
        (settings.host.undefined, settings.host.entry_is_named),
        (vec!["main".to_owned(), "_main".to_owned()], true)
    );
    assert!(settings.host.emulation.is_none());
    assert_eq!(
        inputs(line),
        ["x.obj", "/dir/y.obj", "/z.obj", "a.lib+whole", "b.lib"]
    );
    assert_eq!(inputs("a.lib /wholearchive"), ["a.lib+whole"]);
    let more = "--linker-path=/x/lld-link.exe /nodefaultlib:libcmt -NoDefaultLib -noentry -export:f=g,@1,data -include:h -wrap:w \
                /alternatename:a=b -dll x.obj";
    let settings = self::settings(more);
    assert_eq!(settings.host.undefined, ["g", "_g", "h"]);
    assert_eq!(
        (
            settings.host.without_libraries,
            settings.host.no_default_libraries
        ),
        (words("libcmt"), true)
    );
    assert_eq!(
        settings.host.alternate_names,
        [("a".to_owned(), "b".to_owned())]
    );
    assert!(
        settings.host.entry_is_named
            && settings.host.shared
            && settings.host.wrapped_symbols == ["w"]
    );
    // On a GNU command line, only the options that LLVM's wrapper accepts are known, and only in
    // lower case.
    assert_eq!(
        inputs("/out:x /OUT:y /tmp/a.o -libpath:d"),
        ["/OUT:y", "/tmp/a.o"]
    );
}

#[test]
fn host_options_for_scanning_are_read() {
    let line = "-L a -Lb --library-path=c --library-path d --sysroot=/s -rpath e --rpath=f -R g -r -shared --gc-sections -m elf_i386 \
                -e start -u f --require-defined=g --defsym h=i+0x10*SIZEOF(.text) --wrap j -z now -zdefs a.o";
    let settings = settings(line);
    assert_eq!(
        settings.host.library_dirs,
        ["a", "b", "c", "d"].map(PathBuf::from)
    );
    assert_eq!(settings.host.sysroot, Some("/s".into()));
    assert_eq!(settings.host.rpaths, words("e f g"));
    assert!(
        settings.host.relocatable
            && settings.host.shared
            && settings.host.gc_sections
            && !settings.host.static_link
    );
    assert_eq!(settings.host.emulation.as_deref(), Some("elf_i386"));
    assert_eq!(settings.host.undefined, ["f", "g"]);
    assert_eq!(settings.host.entries, ["start"]);
    let needs: Vec<&String> = settings
        .host
        .defsyms
        .iter()
        .flat_map(|defsym| &defsym.needs)
        .collect();
    assert_eq!(needs, ["i", "SIZEOF", ".text"]);
    let scripts = super::settings(
        "-T a.ld -Tb.ld --script=c.ld -dT d.ld --default-script e.ld --undefined-glob=f* --undefined-glob g? a.o",
    );
    assert_eq!(
        scripts.inputs.iter().map(describe).collect::<Vec<_>>(),
        ["-T a.ld", "-T b.ld", "-T c.ld", "-T d.ld", "-T e.ld", "a.o"]
    );
    assert_eq!(scripts.host.undefined_globs, ["f*", "g?"]);
    assert_eq!(
        (settings.host.wrapped_symbols, settings.host.z_keywords),
        (vec!["j".to_owned()], words("now defs"))
    );
    assert!(
        !super::settings("--gc-sections --no-gc-sections")
            .host
            .gc_sections
    );
    let fortran = |line| super::settings(line).host.fortran_common;
    assert_eq!(
        [
            "a.o",
            "--fortran-common a.o",
            "--fortran-common --no-fortran-common a.o"
        ]
        .map(fortran),
        [None, Some(true), Some(false)]
    );
    assert!(super::settings("-G a.o").host.shared && !super::settings("-G 8 a.o").host.shared);
    assert_eq!(
        inputs("-b binary d --format=elf64-x86-64 a.o"),
        ["d+data", "a.o"]
    );
}

#[test]
fn wrong_values_name_the_option() {
    for wrong in ["0", "", "8X", "-1"] {
        let expected = format!("--wrapper-memory={wrong}: expected auto, off or a size such as 8G");
        assert_eq!(error(&format!("--wrapper-memory={wrong}")), expected);
    }
    assert_eq!(
        error("--wrapper-jobs=0"),
        "--wrapper-jobs=0: expected a positive integer or 'jobserver', got '0'"
    );
    assert_eq!(
        error("--wrapper-jobs=-1"),
        "--wrapper-jobs=-1: expected a positive integer or 'jobserver', got '-1'"
    );
    assert_eq!(
        error("--wrapper-jobs="),
        "--wrapper-jobs=: expected a positive integer or 'jobserver', got ''"
    );
    assert_eq!(
        error("--wrapper-stable-names=yes"),
        "--wrapper-stable-names=yes: expected on, objects or off"
    );
    assert_eq!(
        error("--wrapper-late-images=yes"),
        "--wrapper-late-images=yes: expected auto, on or off"
    );
    assert_eq!(
        error("--wrapper-remote-jobs=0"),
        "--wrapper-remote-jobs=0: expected a positive number"
    );
    assert_eq!(
        error("--wrapper-launcher-wait=x"),
        "--wrapper-launcher-wait=x: expected a number of seconds"
    );
    for wrong in [
        "0",
        "many",
        "",
        "-1",
        "+2",
        "2.5",
        "257",
        "99999999999999999999",
        "Auto",
    ] {
        assert_eq!(
            error(&format!("--wrapper-lto-partitions={wrong}")),
            format!(
                "--wrapper-lto-partitions={wrong}: expected auto or a number from 1 to 256, got '{wrong}'"
            )
        );
    }
    assert_eq!(
        error("--override-image=openmp"),
        "--override-image=openmp: expected <kind>=<file>"
    );
    assert_eq!(
        error("--override-image=openmp="),
        "--override-image=openmp=: expected <kind>=<file>"
    );
    assert_eq!(
        error("--wrapper-time-trace-granularity=x"),
        "--wrapper-time-trace-granularity=x: expected a number of microseconds, got 'x'"
    );
    for option in ["-o", "--output", "-mllvm", "-host-triple", "--linker-path"] {
        assert_eq!(
            error(&format!("a.o {option}")),
            format!("{option}: missing argument")
        );
    }
}

#[test]
fn unknown_arguments_are_forwarded() {
    let tokens: Vec<OsString> = ["", "-", "--", "-o", "x", "", "--unknown=1", "-unknown"]
        .map(OsString::from)
        .to_vec();
    let arguments = ArgumentList::parse(Role::Ld, tokens.clone()).expect("a link");
    assert_eq!(arguments.host_line(&[], &[]), tokens);
    assert!(
        LinkSettings::new(&arguments, &|_| None)
            .expect("a link")
            .inputs
            .is_empty()
    );
}

#[test]
fn names_that_are_not_utf_8_survive() {
    let odd = |prefix: &str| {
        let mut bytes = prefix.as_bytes().to_vec();
        bytes.extend(b"\xff\xfe.o");
        OsString::from_vec(bytes)
    };
    let tokens = vec![
        odd("-o"),
        odd("dir/"),
        odd("-L"),
        odd("--linker-path="),
        odd("-l"),
    ];
    let arguments = ArgumentList::parse(Role::Wrapper, tokens.clone()).expect("a link");
    let settings = LinkSettings::new(&arguments, &|_| None).expect("a link");
    assert_eq!(settings.output, Some(odd("").into()));
    assert_eq!(settings.host.linker_path, Some(odd("").into()));
    assert_eq!(settings.host.library_dirs, [PathBuf::from(odd(""))]);
    assert_eq!(settings.inputs[0].name, InputName::File(odd("dir/").into()));
    assert_eq!(settings.inputs[1].name, InputName::Library(odd("")));
    assert_eq!((settings.inputs[0].token, settings.inputs[1].token), (1, 4));
    assert_eq!(
        arguments.host_line(&[], &[]),
        [&tokens[..3], &tokens[4..]].concat()
    );
}
