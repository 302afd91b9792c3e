//! If either half of a late link fails, the other ends too, and no file is left behind. Killed
//! links leave no output or a whole one.

use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

use libtest_mimic::{Failed, Trial};
use rustix::process::{Pid, Signal, kill_process};

use super::{link, object, ran, stand_in};
use crate::effort::rounds;
use crate::kit::Image;
use crate::support::{
    Outcome, Work, ensure, expect_equal, expect_in, expect_no_file, expect_not_in, llvm, passed,
    run, run_failing, stderr_of, with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        with_llvm(
            "late::failures::of_the_host_link_end_the_device_links",
            host_fails,
        ),
        with_llvm(
            "late::failures::of_a_device_link_end_the_host_link",
            device_fails,
        ),
        with_llvm("late::failures::of_the_disk_leave_nothing", disk_is_full),
        with_llvm(
            "late::failures::a_killed_link_leaves_no_output_or_a_whole_one",
            killed,
        ),
        with_llvm(
            "late::failures::of_the_engine_are_told_and_the_link_is_done_again",
            unusable_output,
        ),
        with_llvm(
            "late::host_and_device_links_run_at_the_same_time",
            links_overlap,
        ),
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
    let left: Vec<String> = names(work)?
        .into_iter()
        .filter(|name| name.contains(".offld-"))
        .collect();
    ensure(left.is_empty(), || format!("left behind: {left:?}"))?;
    work.expect_no_temps()
}

fn host_fails() -> Outcome {
    let work = Work::new();
    work.fat_with(
        "main.o",
        &[Image::amd("gfx90a", "A")],
        "int nowhere(void);\nint main(void) { return nowhere(); }\n",
    )?;
    let start = Instant::now();
    let stderr = run_failing(&mut stand_in(&work, "echo begun > begun; exec sleep 60"))?;
    ensure(
        start.elapsed() < Duration::from_secs(30),
        || "the device link was waited for",
    )?;
    expect_in(&stderr, "nowhere")?;
    expect_not_in(&stderr, "device link")?;
    nothing_left(&work)?;
    passed()
}

fn device_fails() -> Outcome {
    let work = Work::new();
    work.fat_with(
        "main.o",
        &[Image::amd("gfx90a", "A")],
        "int main(void) { return 0; }\n",
    )?;
    let stderr = run_failing(&mut stand_in(&work, "echo no such device >&2; exit 1"))?;
    expect_in(&stderr, "device link for amdgcn-amd-amdhsa (gfx90a)")?;
    expect_in(&stderr, "no such device")?;
    expect_not_in(&stderr, "host link")?;
    nothing_left(&work)?;
    passed()
}

/// A linker whose output has no section headers, so that offld cannot find the section of an image.
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

fn unusable_output() -> Outcome {
    let work = Work::new();
    object(&work)?;
    work.file("bare.c", BARE);
    fs::create_dir_all(work.path().join("tools"))?;
    run(work
        .command("cc")
        .args(["-O1", "bare.c", "-o", "tools/ld.bfd"]))?;
    let linker = work.path().join("tools/ld.bfd");
    for cache in ["off".into(), work.path().join("cache").into_os_string()] {
        let mut link = link(&work, "program", "bfd");
        link.arg(format!("-Wl,--offld-linker={}", linker.display()))
            .env("OFFLD_CACHE", cache);
        let stderr = stderr_of(&mut link)?;
        expect_in(
            &stderr,
            "warning: cannot write the device images into the output of",
        )?;
        expect_in(&stderr, "; repeating the host link with the images")?;
        expect_equal(
            "output",
            "4950 device\n",
            &ran(&work, work.path().join("program"))?,
        )?;
        fs::remove_file(work.path().join("program"))?;
    }
    nothing_left(&work)?;
    passed()
}

fn links_overlap() -> Outcome {
    let work = Work::new();
    work.fat_with(
        "main.o",
        &[Image::amd("gfx90a", "A")],
        "int main(void) { return 0; }\n",
    )?;
    // The device link ends only after the host link, so it would hang if the host link waited for
    // it.
    let end = "for i in $(seq 300); do [ -s .offld-*/program ] && break; sleep 0.1; done; [ $i -lt 300 ] || exit 1; echo image > $out";
    run(&mut stand_in(&work, end))?;
    passed()
}

fn disk_is_full() -> Outcome {
    let work = Work::new();
    object(&work)?;
    run(&mut link(&work, "program", "lld"))?;
    let whole = fs::metadata(work.path().join("program"))?.len();
    fs::remove_file(work.path().join("program"))?;
    // A file size limit simulates a full disk. The different limits fail each step in turn.
    let mut failed = 0;
    for kib in [1, 4, 8, 12, 16, 20, 24, 32, whole / 1024 - 1] {
        let line = link(&work, "program", "lld");
        let args: Vec<String> = line
            .get_args()
            .map(|word| format!("'{}'", word.to_string_lossy()))
            .collect();
        let script = format!(
            "ulimit -f {kib}; trap '' XFSZ; exec {} {}",
            llvm("clang").display(),
            args.join(" ")
        );
        let mut limited = work.command("bash");
        limited
            .args(["-c", &script])
            .env("OFFLD_LATE_IMAGES", "on")
            .env("OFFLD_CACHE", "off");
        let ended = limited
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()?;
        if ended.success() {
            expect_equal(
                "output",
                "4950 device\n",
                &ran(&work, work.path().join("program"))?,
            )?;
            fs::remove_file(work.path().join("program"))?;
        } else {
            failed += 1;
            nothing_left(&work)
                .map_err(|left| format!("{kib} KiB: {}", left.message().unwrap_or_default()))?;
        }
    }
    ensure(failed > 0, || "no link failed")?;
    passed()
}

fn killed() -> Outcome {
    const SIGNALS: [Signal; 3] = [Signal::KILL, Signal::TERM, Signal::INT];
    let work = Work::new();
    object(&work)?;
    let start = Instant::now();
    run(link(&work, "program", "lld").env("OFFLD_CACHE", "off"))?;
    let (whole_time, whole) = (start.elapsed(), fs::read(work.path().join("program"))?);
    // Run the wrapper directly: a signal would only end clang's driver.
    let line = crate::support::stderr_of(link(&work, "program", "lld").arg("-###"))?;
    let line = line
        .lines()
        .find(|line| line.contains("clang-linker-wrapper"))
        .ok_or("no line of the wrapper")?
        .to_owned();
    let count = rounds("late: links that are killed", 200u32, 12);
    let mut ended = 0;
    for round in 0..count {
        let _ = fs::remove_file(work.path().join("program"));
        let share = f64::from(round.wrapping_mul(2_654_435_761) >> 16) / f64::from(1 << 16);
        let signal = SIGNALS[round as usize % SIGNALS.len()];
        let mut shell = work.command("sh");
        shell
            .arg("-c")
            .arg(format!("exec {}", line.trim()))
            .env("OFFLD_LATE_IMAGES", "on")
            .env("OFFLD_CACHE", "off");
        let mut child = shell.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        std::thread::sleep(whole_time.mul_f64(share));
        let pid = i32::try_from(child.id())
            .ok()
            .and_then(Pid::from_raw)
            .ok_or("no process")?;
        kill_process(pid, signal)?;
        let status = child.wait()?;
        ended += u32::from(!status.success());
        let failure = |what: &str| Failed::from(format!("round {round}, {signal:?}: {what}"));
        match fs::read(work.path().join("program")) {
            Ok(there) if there != whole => return Err(failure("half an output")),
            Ok(_) => {}
            Err(_) if status.success() => return Err(failure("success without an output")),
            Err(_) => {}
        }
        let left: Vec<String> = names(&work)?
            .into_iter()
            .filter(|name| name.starts_with(".offld-"))
            .collect();
        if signal != Signal::KILL && !left.is_empty() {
            return Err(failure(&format!("left behind: {left:?}")));
        }
        if signal == Signal::KILL {
            // After SIGKILL, offld cannot remove these files, and its child processes may still be
            // ending.
            std::thread::sleep(Duration::from_millis(500));
            for name in names(&work)?
                .into_iter()
                .filter(|name| name.starts_with(".offld-"))
            {
                // One entry belongs to the output, the other to the host link.
                let path = work.path().join(name);
                if path.is_dir() {
                    fs::remove_dir_all(path)?
                } else {
                    fs::remove_file(path)?
                }
            }
            let _ = fs::remove_dir_all(work.path().join("tmp"));
            // A later link may end before it reads the table of running links, and would leave the
            // killed link's table.
            let _ = fs::remove_dir_all(work.session().join("offld"));
        } else {
            work.expect_no_temps()
                .map_err(|left| failure(left.message().unwrap_or_default()))?;
        }
    }
    ensure(ended > 0, || "no link was ended early")?;
    passed()
}
