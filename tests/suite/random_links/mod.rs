//! Random programs, linked in random arrangements: objects, archives, groups, `--start-lib`, whole
//! archives, `-r` outputs, shared libraries, scripts, `--wrap` and `--defsym`, with weak, hidden,
//! common and COMDAT symbols. offld as clang's wrapper, offld as the linker, and LLVM's wrapper
//! link each program, with ld.lld and ld.bfd. Each program runs offloaded. The device's results
//! must equal those of the program's own host code in the same run. The selected code must equal
//! that of a link of the same objects without device code.
//!
//! `OFFLD_LINKS_SEED=` and `OFFLD_LINKS_COUNT=` select other programs (`make fuzz-links`). With
//! `OFFLD_LINKS_KEEP=1`, the directory of a failing case stays.

mod arrangement;
mod pool;

use std::collections::BTreeMap;
use std::process::Command;

use libtest_mimic::{Failed, Trial};

use super::effort;
use super::support::{
    LLVM, OFFLOAD, Outcome, Random, Work, llvm, made, output, passed, run, shown, text, with_llvm,
};
use arrangement::Arrangement;
use pool::Pool;

/// The number of arrangements for the objects of one pool.
const EACH: u64 = 6;

/// One test for each pool.
pub(crate) fn trials() -> Vec<Trial> {
    let default = if effort::is_long() { 30 } else { 6 };
    let (seed, count) = (
        number("OFFLD_LINKS_SEED", 22),
        number("OFFLD_LINKS_COUNT", default),
    );
    (0..count.div_ceil(EACH))
        .map(|pool| {
            with_llvm(&format!("random_links::{}", seed + pool), move || {
                check(seed + pool)
            })
        })
        .collect()
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|value| value.parse().ok())
        .unwrap_or(default)
}

/// The linker under test.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum By {
    /// A linker without support for device code: target regions run on the host.
    Plain,
    Wrapper,
    Linker,
    Reference,
}

/// The compiler driver for a link.
pub(super) fn driver(work: &Work, by: By, linker: &str) -> Command {
    let mut command = work.command(llvm("clang"));
    command
        .env("OFFLD_CACHE", "off")
        .arg(format!("-L{LLVM}/../lib"))
        .arg(format!("-Wl,-rpath,{LLVM}/../lib"));
    match by {
        By::Plain => command
            .args(["-fopenmp", "-lomptarget"])
            .arg(format!("-fuse-ld={linker}")),
        By::Reference => command.args(OFFLOAD).arg(format!("-fuse-ld={linker}")),
        By::Wrapper => command
            .args(OFFLOAD)
            .arg(format!("-fuse-ld={linker}"))
            .arg("-B")
            .arg(&made().links),
        By::Linker => {
            let real = if linker == "lld" {
                format!("{LLVM}/ld.lld")
            } else {
                format!("ld.{linker}")
            };
            let ours = format!("--ld-path={}", made().links.join("ld.offld").display());
            command.arg("-fopenmp").arg(ours).env("OFFLD_LINKER", real)
        }
    };
    command
}

fn check(seed: u64) -> Outcome {
    let work = Work::new();
    let pool = Pool::new(&mut Random(seed));
    let compiled = pool.compile(&work);
    compiled?;
    let mut faults: BTreeMap<&'static str, usize> = BTreeMap::new();
    let mut random = Random(seed ^ 0xd1ff);
    let (mut done, mut tried) = (0, 0);
    while done < EACH && tried < 20 * EACH {
        tried += 1;
        let linker = if random.chance(50) { "lld" } else { "bfd" };
        let arrangement = Arrangement::new(&pool, linker, &mut random);
        match case(&work, &arrangement) {
            Ok(None) => {}
            Ok(Some(fault)) => {
                done += 1;
                *faults.entry(fault).or_default() += 1;
            }
            Err(failed) => {
                if std::env::var_os("OFFLD_LINKS_KEEP").is_some() {
                    let _ =
                        std::fs::write(work.path().join("arrangement"), arrangement.to_string());
                    let kept = std::env::temp_dir().join(format!("offld-links-{seed}"));
                    let _ = Command::new("cp")
                        .arg("-a")
                        .arg(work.path())
                        .arg(&kept)
                        .status();
                }
                return Err(format!(
                    "seed {seed}, case {tried}:\n{arrangement}\n{}",
                    failed.message().unwrap_or_default()
                )
                .into());
            }
        }
    }
    if done < EACH {
        return Err(format!(
            "seed {seed}: of {tried} arrangements only {done} link without device code"
        )
        .into());
    }
    if std::env::var_os("OFFLD_LINKS_COUNT").is_some() {
        eprintln!("seed {seed}: {done} cases; LLVM's wrapper: {faults:?}");
    }
    passed()
}

/// Links and runs one arrangement. Returns `None` if the link without device code fails, and
/// otherwise the result of LLVM's wrapper.
fn case(work: &Work, arrangement: &Arrangement<'_>) -> Result<Option<&'static str>, Failed> {
    arrangement.prepare(work)?;
    let mut link = arrangement.link(work, By::Plain)?;
    if !output(&mut link)?.status.success() {
        return Ok(None);
    }
    let plain = reports(&run(work
        .command("./program")
        .env("OMP_TARGET_OFFLOAD", "disabled"))?)?;
    for by in [By::Wrapper, By::Linker] {
        let told = |failed: Failed| {
            Failed::from(format!("{by:?}: {}", failed.message().unwrap_or_default()))
        };
        run(&mut arrangement.link(work, by)?).map_err(told)?;
        let mut program = work.command("./program");
        let printed = run(program.env("OMP_TARGET_OFFLOAD", "mandatory")).map_err(told)?;
        compare(&plain, &reports(&printed)?)
            .map_err(|why| Failed::from(format!("{by:?}: {why}\n{printed}")))?;
    }
    Ok(Some(reference(work, arrangement, &plain)?))
}

/// Links and runs an arrangement with LLVM's wrapper. Returns `same`, or the name of a known fault
/// (docs/spec/faults.md). Any other difference is an error.
fn reference(
    work: &Work,
    arrangement: &Arrangement<'_>,
    plain: &[Report],
) -> Result<&'static str, Failed> {
    let mut link = match arrangement.link(work, By::Reference) {
        Ok(link) => link,
        Err(failed) => return named(failed.message().unwrap_or_default()),
    };
    let linked = output(&mut link)?;
    if !linked.status.success() {
        return named(&shown(&link, &linked));
    }
    let mut program = work.command("./program");
    let ran = output(program.env("OMP_TARGET_OFFLOAD", "mandatory"))?;
    if !ran.status.success() {
        return if arrangement.has_partial() {
            Ok("takes the linked image of a -r output for an input (F17)")
        } else if arrangement.has_script() || arrangement.main_is_plain() {
            Ok("leaves device code out that a script names, or that only archives have")
        } else {
            Err(format!(
                "LLVM's dies, for no known reason: {}",
                shown(&program, &ran)
            )
            .into())
        };
    }
    let printed = reports(&text(&ran.stdout))?;
    match compare(plain, &printed) {
        Ok(()) => Ok("same"),
        // LLVM's wrapper links all members in the order of the archives. Members that the host link
        // does not pull may have other definitions.
        Err(_) => Ok("takes other definitions than the host"),
    }
}

fn named(told: &str) -> Result<&'static str, Failed> {
    let says = |text: &str| told.contains(text);
    if says("multiple definition") || says("duplicate symbol") {
        Ok("links every member, and archives as often as they are named")
    } else if says("undefined reference") || says("undefined symbol") {
        Ok("links members that the host does not take, or leaves some out")
    } else {
        Err(format!("LLVM's fails, for no known reason: {told}").into())
    }
}

/// One line of a program's output: the unit's number, whether its region ran on a device, and the
/// results of region and host code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Report {
    unit: String,
    device: bool,
    on_device: i64,
    on_host: i64,
}

fn reports(printed: &str) -> Result<Vec<Report>, Failed> {
    let report = |line: &str| {
        let mut words = line.split(' ');
        let unit = words.next()?.to_owned();
        let mut number = || words.next()?.parse::<i64>().ok();
        Some(Report {
            unit,
            device: number()? == 1,
            on_device: number()?,
            on_host: number()?,
        })
    };
    printed
        .lines()
        .map(|line| report(line).ok_or_else(|| Failed::from(format!("not a report: {line}"))))
        .collect()
}

fn compare(plain: &[Report], offloaded: &[Report]) -> Result<(), String> {
    if plain.len() != offloaded.len() {
        return Err(format!(
            "{} reports, and {} without device code",
            offloaded.len(),
            plain.len()
        ));
    }
    for (plain, report) in plain.iter().zip(offloaded) {
        if !report.device {
            return Err(format!("unit {} did not run on the device", report.unit));
        }
        if report.on_device != report.on_host
            || report.on_host != plain.on_host
            || report.unit != plain.unit
        {
            return Err(format!("{report:?}, and without device code {plain:?}"));
        }
    }
    Ok(())
}
