//! A part of a late link that fails ends the other, and leaves nothing; killed links leave no output or a whole one.

use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

use libtest_mimic::{Failed, Trial};
use rustix::process::{Pid, Signal, kill_process};

use super::{link, object, ran, stand_in};
use crate::effort::rounds;
use crate::kit::Image;
use crate::support::{
    Outcome, Work, ensure, expect_equal, expect_in, expect_no_file, expect_not_in, llvm, passed, run, run_failing, stderr_of,
    with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        with_llvm("late::failures::of_the_host_link_end_the_device_links", host_fails),
        with_llvm("late::failures::of_a_device_link_end_the_host_link", device_fails),
        with_llvm("late::failures::of_the_disk_leave_nothing", disk_is_full),
        with_llvm("late::failures::a_killed_link_leaves_no_output_or_a_whole_one", killed),
        with_llvm("late::failures::of_the_engine_are_told_and_the_link_is_done_again", unfit),
        with_llvm("late::host_and_device_links_run_at_the_same_time", at_once),
    ]
}

fn names(work: &Work) -> Result<Vec<String>, Failed> {
    let mut names = Vec::new();
    for entry in fs::read_dir(work.path())? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    Ok(names)
}

fn nothing_left(work: &Work) -> Result<(), Failed> {
    expect_no_file(&work.path().join("program"))?;
    let left: Vec<String> = names(work)?.into_iter().filter(|name| name.contains(".offld-")).collect();
    ensure(left.is_empty(), || format!("left behind: {left:?}"))?;
    work.expect_no_temps()
}

fn host_fails() -> Outcome {
    let work = Work::new();
    work.fat_with("main.o", &[Image::amd("gfx90a", "A")], "int nowhere(void);\nint main(void) { return nowhere(); }\n")?;
    let began = Instant::now();
    let told = run_failing(&mut stand_in(&work, "echo begun > begun; exec sleep 60"))?;
    ensure(began.elapsed() < Duration::from_secs(30), || "the device link was waited for")?;
    expect_in(&told, "nowhere")?;
    expect_not_in(&told, "device link")?;
    nothing_left(&work)?;
    passed()
}

fn device_fails() -> Outcome {
    let work = Work::new();
    work.fat_with("main.o", &[Image::amd("gfx90a", "A")], "int main(void) { return 0; }\n")?;
    let told = run_failing(&mut stand_in(&work, "echo no such device >&2; exit 1"))?;
    expect_in(&told, "device link for amdgcn-amd-amdhsa (gfx90a)")?;
    expect_in(&told, "no such device")?;
    expect_not_in(&told, "host link")?;
    nothing_left(&work)?;
    passed()
}

/// A linker that leaves no section headers, so that nobody finds a section of images.
const BARE: &str = r#"#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int argc, char **argv) {
  pid_t child = fork();
  if (child == 0) { argv[0] = "/usr/bin/ld.bfd"; return execv(argv[0], argv); }
  int status = 1;
  if (waitpid(child, &status, 0) < 0 || status != 0) return 1;
  const char *output = NULL;
  for (int i = 1; i + 1 < argc; i++) if (!strcmp(argv[i], "-o")) output = argv[i + 1];
  FILE *file = fopen(output, "r+b");
  char none[8] = {0};
  /* e_shoff; e_shentsize, e_shnum and e_shstrndx. */
  return !file || fseek(file, 40, SEEK_SET) || fwrite(none, 8, 1, file) != 1 || fseek(file, 60, SEEK_SET)
    || fwrite(none, 4, 1, file) != 1 || fclose(file);
}
"#;

fn unfit() -> Outcome {
    let work = Work::new();
    object(&work)?;
    work.file("bare.c", BARE);
    fs::create_dir_all(work.path().join("tools"))?;
    run(work.command("cc").args(["-O1", "bare.c", "-o", "tools/ld.bfd"]))?;
    let linker = work.path().join("tools/ld.bfd");
    for cache in ["off".into(), work.path().join("cache").into_os_string()] {
        let mut link = link(&work, "program", "bfd");
        link.arg(format!("-Wl,--offld-linker={}", linker.display())).env("OFFLD_CACHE", cache);
        let told = stderr_of(&mut link)?;
        expect_in(&told, "warning: device images cannot be put into the program that")?;
        expect_in(&told, "; it is linked once more, with them")?;
        expect_equal("output", "4950 device\n", &ran(&work, work.path().join("program"))?)?;
        fs::remove_file(work.path().join("program"))?;
    }
    nothing_left(&work)?;
    passed()
}

fn at_once() -> Outcome {
    let work = Work::new();
    work.fat_with("main.o", &[Image::amd("gfx90a", "A")], "int main(void) { return 0; }\n")?;
    // The device link ends when the host link has, and would wait for ever if that waited for it.
    let end =
        "for i in $(seq 300); do [ -s .offld-*/program ] && break; sleep 0.1; done; [ $i -lt 300 ] || exit 1; echo image > $out";
    run(&mut stand_in(&work, end))?;
    passed()
}

fn disk_is_full() -> Outcome {
    let work = Work::new();
    object(&work)?;
    run(&mut link(&work, "program", "lld"))?;
    let whole = fs::metadata(work.path().join("program"))?.len();
    fs::remove_file(work.path().join("program"))?;
    // A limit on the size of files stands for a full disk, as far as writers see it: it ends them at each step in turn.
    let mut failed = 0;
    for kib in [1, 4, 8, 12, 16, 20, 24, 32, whole / 1024 - 1] {
        let line = link(&work, "program", "lld");
        let words: Vec<String> = line.get_args().map(|word| format!("'{}'", word.to_string_lossy())).collect();
        let script = format!("ulimit -f {kib}; trap '' XFSZ; exec {} {}", llvm("clang").display(), words.join(" "));
        let mut limited = work.command("bash");
        limited.args(["-c", &script]).env("OFFLD_LATE_IMAGES", "on").env("OFFLD_CACHE", "off");
        let ended = limited.stdout(Stdio::null()).stderr(Stdio::null()).status()?;
        if ended.success() {
            expect_equal("output", "4950 device\n", &ran(&work, work.path().join("program"))?)?;
            fs::remove_file(work.path().join("program"))?;
        } else {
            failed += 1;
            nothing_left(&work).map_err(|left| format!("{kib} KiB: {}", left.message().unwrap_or_default()))?;
        }
    }
    ensure(failed > 0, || "no link failed")?;
    passed()
}

fn killed() -> Outcome {
    const SIGNALS: [Signal; 3] = [Signal::KILL, Signal::TERM, Signal::INT];
    let work = Work::new();
    object(&work)?;
    let began = Instant::now();
    run(link(&work, "program", "lld").env("OFFLD_CACHE", "off"))?;
    let (whole_time, whole) = (began.elapsed(), fs::read(work.path().join("program"))?);
    // Without clang's driver in between, which would die alone.
    let line = crate::support::stderr_of(link(&work, "program", "lld").arg("-###"))?;
    let line = line.lines().find(|line| line.contains("clang-linker-wrapper")).ok_or("no line of the wrapper")?.to_owned();
    let count = rounds("late: links that are killed", 200u32, 12);
    let mut ended = 0;
    for round in 0..count {
        let _ = fs::remove_file(work.path().join("program"));
        let share = f64::from(round.wrapping_mul(2_654_435_761) >> 16) / f64::from(1 << 16);
        let signal = SIGNALS[round as usize % SIGNALS.len()];
        let mut shell = work.command("sh");
        shell.arg("-c").arg(format!("exec {}", line.trim())).env("OFFLD_LATE_IMAGES", "on").env("OFFLD_CACHE", "off");
        let mut child = shell.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        std::thread::sleep(whole_time.mul_f64(share));
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or("no process")?;
        kill_process(pid, signal)?;
        let status = child.wait()?;
        ended += u32::from(!status.success());
        let told = |what: &str| Failed::from(format!("round {round}, {signal:?}: {what}"));
        match fs::read(work.path().join("program")) {
            Ok(there) if there != whole => return Err(told("half an output")),
            Ok(_) => {}
            Err(_) if status.success() => return Err(told("success without an output")),
            Err(_) => {}
        }
        let left: Vec<String> = names(&work)?.into_iter().filter(|name| name.starts_with(".offld-")).collect();
        if signal != Signal::KILL && !left.is_empty() {
            return Err(told(&format!("left behind: {left:?}")));
        }
        if signal == Signal::KILL {
            // Nobody takes these away then, and children may still be ending.
            std::thread::sleep(Duration::from_millis(500));
            for name in names(&work)?.into_iter().filter(|name| name.starts_with(".offld-")) {
                // One is of the output, the other of the host link.
                let path = work.path().join(name);
                if path.is_dir() { fs::remove_dir_all(path)? } else { fs::remove_file(path)? }
            }
            let _ = fs::remove_dir_all(work.path().join("tmp"));
        } else {
            work.expect_no_temps().map_err(|left| told(left.message().unwrap_or_default()))?;
        }
    }
    ensure(ended > 0, || "no link was ended early")?;
    passed()
}
