//! Damaged host bitcode: bytes flipped, ranges overwritten and ends cut off at random offsets,
//! given to the real program. offld never crashes, needs at most 512 MiB and ten seconds of CPU
//! time, and its errors name the file. `OFFLD_TEST_LONG=1` runs thousands instead of hundreds.

use std::process::Command;

use libtest_mimic::{Failed, Trial};

use crate::support::{
    OFFLOAD, Outcome, Work, llvm, made, output, passed, run, shown, text, with_llvm,
};

const SOURCE: &str = "\
int counted; __attribute__((weak)) int replaced(void) { return 1; }
__asm__(\".globl from_asm\\nfrom_asm: ret\");
void add(int *x, int n) {
#pragma omp target map(tofrom: x[0:n])
  for (int i = 0; i < n; i++) x[i] += i;
}
int main(void) { return counted + replaced(); }
";
/// The file that is damaged.
const FILE: &str = "damaged.bc";
/// Limits on data (KiB) and processor time (s), and on time (s) for what waits and computes
/// nothing.
const LIMITED: &str = "ulimit -d 524288 && ulimit -t 10 || exit 99; exec timeout 120 \"$0\" \"$@\"";
/// How many files, by hand and in every run of the suite.
const LONG: usize = 3000;
const SHORT: usize = 240;

/// The tests: of modules for the ordinary and for the thin kind of link.
pub(super) fn trials() -> Vec<Trial> {
    let forms = [("full", "-flto"), ("thin", "-flto=thin")];
    forms
        .map(|(name, form)| {
            with_llvm(&format!("host_bitcode::damaged_{name}"), move || {
                damaged(form)
            })
        })
        .into()
}

fn damaged(form: &str) -> Outcome {
    let work = Work::new();
    work.file("host.c", SOURCE);
    run(work
        .command(llvm("clang"))
        .args(OFFLOAD)
        .args([form, "-O1", "-c", "host.c", "-o", "good.bc"]))?;
    let good = std::fs::read(work.path().join("good.bc"))?;
    let all = if std::env::var_os("OFFLD_TEST_LONG").is_some_and(|value| value == "1") {
        LONG / 2
    } else {
        SHORT / 2
    };
    let (mut random, mut failed) = (Random(0x0dd_b17 + form.len() as u64), 0);
    for index in 0..all {
        let bytes = random.damaged(&good);
        work.file(FILE, &bytes);
        let (mut command, refusal) = if index % 2 == 0 {
            (inspect(&work), 2)
        } else {
            (link(&work), 1)
        };
        let output = output(&mut command)?;
        let told = judge(&output, refusal).map_err(|why| {
            let kept = std::env::temp_dir().join(format!("offld-damaged-{form}-{index}.bc"));
            let saved = std::fs::write(&kept, &bytes)
                .map(|()| kept.display().to_string())
                .unwrap_or_default();
            Failed::from(format!(
                "{why} (file {index}, kept as {saved})\n{}",
                shown(&command, &output)
            ))
        })?;
        failed += usize::from(told);
    }
    // If nothing failed, nothing was damaged; if everything did, the good file would, too.
    if failed < all / 10 || failed == all {
        return Err(format!("{failed} of {all} files were refused").into());
    }
    passed()
}

fn limited(work: &Work) -> Command {
    let mut command = work.command("/bin/sh");
    command.args(["-c", LIMITED]).env("RAYON_NUM_THREADS", "2");
    command
}

fn inspect(work: &Work) -> Command {
    let mut command = limited(work);
    command.arg(crate::support::offld()).args(["inspect", FILE]);
    command
}

fn link(work: &Work) -> Command {
    let mut command = limited(work);
    command.arg(made().links.join("clang-linker-wrapper"));
    command.args(["--dry-run", "--host-triple=x86_64-unknown-linux-gnu"]);
    command
        .arg(format!("--linker-path={}", llvm("ld.lld").display()))
        .args(["-o", "out", FILE]);
    command
}

/// Whether the file was refused, which must be said in the right way.
fn judge(output: &std::process::Output, refusal: i32) -> Result<bool, String> {
    let stderr = text(&output.stderr);
    match output.status.code() {
        Some(0) => Ok(false),
        // What `offld inspect` says where there is no device code, be it because the list of it is
        // damaged.
        Some(1) if refusal == 2 => Ok(false),
        Some(code) if code == refusal => {
            match (stderr.contains("error: "), stderr.contains(FILE)) {
                (true, true) => Ok(true),
                (false, _) => Err("no error was told".into()),
                (_, false) => Err("the error does not name the file".into()),
            }
        }
        _ => Err(format!("ended with {}", output.status)),
    }
}

/// Numbers that look random and are the same in each run (Knuth's MMIX generator).
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % end.max(1)
    }

    fn damaged(&mut self, good: &[u8]) -> Vec<u8> {
        let mut bytes = good.to_vec();
        match self.below(10) {
            0 => bytes.truncate(self.below(good.len())),
            1 => {
                let (at, len) = (self.below(good.len()), 1 + self.below(16));
                bytes
                    .iter_mut()
                    .skip(at)
                    .take(len)
                    .for_each(|byte| *byte = self.below(256) as u8);
            }
            2..=5 => {
                let at = self.below(good.len());
                bytes[at] ^= 1 << self.below(8);
            }
            _ => {
                for _ in 0..=self.below(4) {
                    let at = self.below(good.len());
                    bytes[at] = self.below(256) as u8;
                }
            }
        }
        bytes
    }
}
