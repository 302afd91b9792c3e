//! Bundles in sections of host objects, and archives of such objects, compared with llvm-objcopy
//! and the bundlers of LLVM 14 to 22. The bytes are equal in all cases that LLVM handles correctly.

#[path = "fat_objects/archives.rs"]
mod archives;
#[path = "fat_objects/checked.rs"]
mod checked;
#[path = "fat_objects/releases.rs"]
mod releases;

use std::path::PathBuf;
use std::process::Command;

use libtest_mimic::{Failed, Trial};

use crate::bundler::{HOST, bundler, ours, theirs, words};
use crate::support::{
    Outcome, Work, at_most_memory, expect_equal, expect_in, expect_not_in, llvm, output, passed,
    run, with_llvm,
};

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = vec![
        with_llvm(
            "fat_objects::b19_ob_05_the_objects_of_llvm_objcopy_without_it",
            same_objects,
        ),
        with_llvm("fat_objects::b19_objects_of_gcc", of_gcc),
        with_llvm("fat_objects::b19_groups_of_gcc_stay_what_they_are", groups),
        with_llvm(
            "fat_objects::programs_linked_of_them_hold_no_bundles",
            programs,
        ),
        with_llvm(
            "fat_objects::memory_does_not_grow_with_code_objects",
            memory,
        ),
        with_llvm(
            "fat_objects::b16_the_host_of_objects_put_together",
            partial_link,
        ),
    ];
    trials.extend(trials_of! { archives checked releases });
    trials
}

const SOURCE: &str = r#"
int table[100]; static int hidden = 3; extern int printf(const char *, ...);
__attribute__((weak)) int weak_function(void) { return 1; }
const char *a_name_that_is_longer_than_eight_characters = "text";
int main(int argc, char **argv) { printf("%s %d\n", a_name_that_is_longer_than_eight_characters, table[argc] + hidden + weak_function()); return 0; }
"#;

/// Ids of code objects, each with the name of its file.
const DEVICES: [(&str, &str); 3] = [
    ("hip-amdgcn-amd-amdhsa--gfx906", "one"),
    ("hip-amdgcn-amd-amdhsa--gfx90a:xnack+", "two"),
    ("openmp-nvptx64-nvidia-cuda-unknown-sm_70", "empty"),
];

/// A directory with the files of [`DEVICES`].
fn devices() -> Work {
    let work = Work::new();
    work.file("one", "the first code object");
    work.file("two", b"\0\x01\x02".repeat(40_000));
    work.file("empty", "");
    work
}

/// The command line that bundles `host` and [`DEVICES`].
fn bundling(host: &str, output: &str) -> String {
    let ids: Vec<&str> = DEVICES.iter().map(|(id, _)| *id).collect();
    let inputs: String = DEVICES
        .iter()
        .map(|(_, file)| format!("-input={file} "))
        .collect();
    format!(
        "-type=o -targets={},{HOST} {inputs} -input={host} -output={output}",
        ids.join(",")
    )
}

/// The command line that unbundles `fat` into files whose names start with `start`.
fn unbundling(fat: &str, start: &str) -> String {
    let ids: Vec<&str> = DEVICES.iter().map(|(id, _)| *id).collect();
    let outputs: String = DEVICES
        .iter()
        .map(|(_, file)| format!("-output={start}.{file} "))
        .collect();
    format!(
        "-type=o -unbundle -input={fat} -targets={},{HOST} {outputs} -output={start}.host",
        ids.join(",")
    )
}

/// Runs a command line with LLVM's bundler.
fn by_theirs(work: &Work, line: &str) -> Result<(), Failed> {
    run(&mut bundler(work, theirs(), &words(line))).map(drop)
}

/// Runs a command line with offld's bundler, which must not need other programs.
fn by_ours(work: &Work, line: &str) -> Result<(), Failed> {
    run(bundler(work, ours(), &words(line)).env("PATH", "/nowhere")).map(drop)
}

/// Fails unless both files have the same contents.
fn same_file(work: &Work, one: &str, other: &str) -> Result<(), Failed> {
    let read = |name: &str| {
        std::fs::read(work.path().join(name))
            .map_err(|error| Failed::from(format!("{name}: {error}")))
    };
    let (first, second) = (read(one)?, read(other)?);
    let at = first
        .iter()
        .zip(&second)
        .take_while(|(one, other)| one == other)
        .count();
    if first == second {
        return Ok(());
    }
    Err(format!(
        "{one} ({} bytes) and {other} ({}) differ from {at:#x} on",
        first.len(),
        second.len()
    )
    .into())
}

/// Bundles `host` with both tools, and unbundles each result with the other tool.
fn both_ways(work: &Work, host: &str) -> Result<(), Failed> {
    by_theirs(work, &bundling(host, "theirs.fat"))?;
    by_ours(work, &bundling(host, "ours.fat"))?;
    same_file(work, "ours.fat", "theirs.fat")?;
    by_theirs(work, &unbundling("ours.fat", "theirs"))?;
    by_ours(work, &unbundling("theirs.fat", "ours"))?;
    for (_, file) in DEVICES {
        same_file(work, &format!("ours.{file}"), file)?;
    }
    same_file(work, "ours.host", "theirs.host")
}

fn same_objects() -> Outcome {
    let work = devices();
    work.file("a.c", SOURCE);
    let elf = [
        "x86_64-unknown-linux-gnu",
        "aarch64-unknown-linux-gnu",
        "powerpc-unknown-linux-gnu",
    ];
    for target in elf
        .into_iter()
        .chain(["x86_64-pc-windows-msvc", "x86_64-w64-windows-gnu"])
    {
        for flags in [&["-O0"][..], &["-O2", "-g", "-ffunction-sections"]] {
            run(work
                .command(llvm("clang"))
                .arg(format!("--target={target}"))
                .args(flags)
                .args(["-c", "a.c", "-o", "host.o"]))?;
            both_ways(&work, "host.o")
                .map_err(|failed| Failed::from(format!("{target} {flags:?}: {failed:?}")))?;
            // llvm-objcopy moves the empty sections of some objects even if it only copies them.
            run(work
                .command(llvm("llvm-objcopy"))
                .args(["host.o", "copy.o"]))?;
            same_file(&work, "ours.host", "copy.o")?;
            if elf.contains(&target) && flags.len() == 1 {
                same_file(&work, "ours.host", "host.o")?;
            }
        }
    }
    work.expect_no_temps()?;
    passed()
}

/// Objects of gcc have section groups and string tables that LLVM would write differently.
fn of_gcc() -> Outcome {
    let work = devices();
    work.file("a.c", SOURCE);
    run(work
        .command("cc")
        .args(["-g", "-O2", "-c", "a.c", "-o", "host.o"]))?;
    both_ways(&work, "host.o")?;
    passed()
}

/// gcc names some groups by local symbols. llvm-objcopy treats each of them as unique, so linkers
/// keep every copy.
fn groups() -> Outcome {
    let work = devices();
    work.file(
        "a.cpp",
        "struct A { virtual ~A() {} virtual int f() { return 1; } }; struct B : A { ~B() {} int f() { return 2; } };\nA *make() { return new B; }\n",
    );
    run(work.command("c++").args(["-c", "a.cpp", "-o", "host.o"]))?;
    by_ours(&work, &bundling("host.o", "fat.o"))?;
    by_ours(&work, &unbundling("fat.o", "ours"))?;
    let groups = |name: &str| {
        run(work
            .command(llvm("llvm-readelf"))
            .args(["--section-groups", name]))
    };
    let expected = groups("host.o")?;
    expect_in(&expected, "COMDAT group section")?;
    for name in ["fat.o", "ours.host"] {
        expect_equal(name, &expected, &groups(name)?)?;
    }
    passed()
}

fn programs() -> Outcome {
    let work = devices();
    work.file("a.c", SOURCE);
    run(work
        .command(llvm("clang"))
        .args(["-c", "a.c", "-o", "host.o"]))?;
    by_ours(&work, &bundling("host.o", "fat.o"))?;
    for linker in ["bfd", "lld"] {
        let flag = if linker == "lld" {
            format!("--ld-path={}", llvm("ld.lld").display())
        } else {
            "-fuse-ld=bfd".to_owned()
        };
        run(work
            .command(llvm("clang"))
            .args([&flag, "fat.o", "-o", "program"]))?;
        expect_equal(
            linker,
            "text 4\n",
            &run(&mut work.command(work.path().join("program")))?,
        )?;
        expect_not_in(
            &run(work.command(llvm("llvm-readelf")).args(["-S", "program"]))?,
            "CLANG_OFFLOAD_BUNDLE",
        )?;
    }
    passed()
}

/// After `ld -r`, the host marker is one zero byte per object; LLVM's bundler returns these bytes
/// as the host object.
fn partial_link() -> Outcome {
    let work = devices();
    for name in ["a", "b"] {
        work.file("a.c", format!("int {name};\n"));
        run(work
            .command(llvm("clang"))
            .args(["-c", "a.c", "-o", &format!("{name}.host.o")]))?;
        by_ours(
            &work,
            &bundling(&format!("{name}.host.o"), &format!("{name}.o")),
        )?;
    }
    run(work
        .command(llvm("ld.lld"))
        .args(["-r", "a.o", "b.o", "-o", "fat.o"]))?;
    let remove = [
        "--regex",
        "--remove-section=__CLANG_OFFLOAD_BUNDLE__.*",
        "fat.o",
        "host.o",
    ];
    run(work.command(llvm("llvm-objcopy")).args(remove))?;
    by_theirs(
        &work,
        &format!("-type=o -unbundle -input=fat.o -targets={HOST} -output=theirs"),
    )?;
    expect_equal(
        "theirs",
        "[0, 0]",
        &format!("{:?}", std::fs::read(work.path().join("theirs"))?),
    )?;
    by_ours(
        &work,
        &format!("-type=o -unbundle -input=fat.o -targets={HOST} -output=ours"),
    )?;
    same_file(&work, "ours", "host.o")?;
    passed()
}

/// Bundles and unbundles 512 MiB with bounded memory.
fn memory() -> Outcome {
    let work = devices();
    work.file("a.c", SOURCE);
    run(work
        .command(llvm("clang"))
        .args(["-c", "a.c", "-o", "host.o"]))?;
    std::fs::File::create(work.path().join("one"))?.set_len(512 << 20)?;
    for line in [bundling("host.o", "fat.o"), unbundling("fat.o", "out")] {
        at_most_memory(&mut bundler(&work, ours(), &words(&line)), 64)?;
    }
    expect_equal(
        "size",
        &(512 << 20).to_string(),
        &std::fs::metadata(work.path().join("out.one"))?
            .len()
            .to_string(),
    )?;
    passed()
}

/// Creates an archive of `members` with LLVM's archiver.
fn archive(work: &Work, flags: &str, name: &str, members: &[&str]) -> Result<(), Failed> {
    run(work
        .command(llvm("llvm-ar"))
        .args(words(flags))
        .arg(name)
        .args(members))
    .map(drop)
}

/// The names and contents of an archive's members, sorted.
fn members(work: &Work, name: &str) -> Result<Vec<(String, Vec<u8>)>, Failed> {
    let data = std::fs::read(work.path().join(name)).map_err(|error| format!("{name}: {error}"))?;
    let mut all = Vec::new();
    for member in object::read::archive::ArchiveFile::parse(&*data)?.members() {
        let member = member?;
        all.push((
            String::from_utf8_lossy(member.name()).into_owned(),
            member.data(&*data)?.to_vec(),
        ));
    }
    all.sort();
    Ok(all)
}

/// The names of an archive's members, sorted, one per line.
fn names(work: &Work, name: &str) -> Result<String, Failed> {
    Ok(members(work, name)?
        .into_iter()
        .map(|(name, _)| name + "\n")
        .collect())
}

/// Runs a command that must fail and leave none of these outputs. Returns stderr.
fn refused(work: &Work, command: &mut Command, outputs: &[&str]) -> Result<String, Failed> {
    let ended = output(command)?;
    if ended.status.code() != Some(1) {
        return Err(format!(
            "should have failed: {}",
            crate::support::shown(command, &ended)
        )
        .into());
    }
    for name in outputs {
        if work.path().join(name).exists() {
            return Err(format!("{name} is there").into());
        }
    }
    Ok(crate::support::text(&ended.stderr))
}

/// The path of offld's bundler, for commands that need more than arguments.
fn our_tool() -> PathBuf {
    ours()
}
