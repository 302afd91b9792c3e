//! Host objects that are bitcode: the results of the reader in `formats::bitcode` compared with
//! LLVM's tools, and damaged bitcode given to the real program.

use std::collections::BTreeSet;
use std::process::Command;

use libtest_mimic::{Failed, Trial};
use offload_formats::{bitcode, offload_sections};

use crate::malformed::mutations::damaged as damaged_by;
use crate::support::{
    OFFLOAD, Outcome, Random, Release, Work, expect_equal, llvm, made, missing, output, passed,
    run, shown, test, text, with_llvm,
};

/// Symbols of every kind that C has.
const C: &str = "\
int common; __thread int tls = 3; static int local; int hidden __attribute__((visibility(\"hidden\"))) = 2;
extern int missing(int); extern int maybe(void) __attribute__((weak));
int twice(int x) { return maybe ? maybe() : missing(x) + tls + local++ + common; }
int alias(void) __attribute__((alias(\"plain\"))); int plain(void) { return hidden; }
__attribute__((weak)) int replaced(void) { return 1; }
int placed __attribute__((section(\"mine\"))) = 4;
int raw __asm__(\"$raw.name\") = 5;
";
/// What only LLVM 22's C frontend is asked for: a function that another one chooses.
const IFUNC: &str = "\
static int one(void) { return 1; } void *choose(void) { return one; } int chosen(void) __attribute__((ifunc(\"choose\")));
";
/// A kernel.
const OPENMP: &str = "\
#pragma omp declare target
int counted[10];
#pragma omp end declare target
void add(int *x, int n) {
#pragma omp target teams distribute parallel for map(tofrom: x[0:n])
  for (int i = 0; i < n; i++) x[i] += i + counted[i % 10];
}
";
/// Comdats, tables of virtual functions, and what exceptions need.
const CXX: &str = "\
struct A { virtual ~A(); virtual int f(); static thread_local int t; };
template <class T> struct B : A { int f() override { return sizeof(T); } };
inline int &counter() { static int s; return s; }
thread_local int A::t = 5; A::~A() {} int A::f() { return counter()++ + t; }
template struct B<long>; extern template struct B<int>;
int call(A *a) { try { return a->f(); } catch (int x) { return x; } }
B<char> made;
";
/// Ways to ask for bitcode.
const FORMS: [&[&str]; 5] = [
    &["-flto"],
    &["-flto=thin", "-O2"],
    &["-flto", "-g", "-O2"],
    &["-flto", "-fcommon"],
    &[
        "-flto=thin",
        "-O2",
        "-fsplit-lto-unit",
        "-fwhole-program-vtables",
        "-fvisibility=hidden",
    ],
];

/// The tests.
pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = vec![
        with_llvm("host_bitcode::beside_llvm_nm", || {
            of_release(&Release::newest())
        }),
        with_llvm(
            "host_bitcode::images_are_those_of_the_native_object",
            images,
        ),
    ];
    trials.extend([14, 15, 16, 19].map(|major| {
        test(
            format!("releases::host_bitcode::{major}"),
            move || match Release::of(major) {
                Some(release) => of_release(&release),
                None => missing(format!("LLVM {major} (make setup-releases)")),
            },
        )
    }));
    trials.extend(
        [("full", "-flto"), ("thin", "-flto=thin")].map(|(name, form)| {
            with_llvm(&format!("host_bitcode::damaged_{name}"), move || {
                damaged(form)
            })
        }),
    );
    trials
}

fn of_release(release: &Release) -> Outcome {
    let work = Work::new();
    work.file(
        "c.c",
        [C, if release.major == 22 { IFUNC } else { "" }].concat(),
    );
    work.file("cxx.cpp", CXX);
    work.file("openmp.c", OPENMP);
    for form in FORMS {
        for (source, more) in [
            ("c.c", &[][..]),
            ("cxx.cpp", &[]),
            ("openmp.c", &OFFLOAD[..]),
        ] {
            let mut clang = work.command(release.tool("clang"));
            if !more.is_empty() {
                clang.args(&release.compile);
            }
            run(clang
                .args(more)
                .args(form)
                .args(["-fPIC", "-c", source, "-o", "host.bc"]))?;
            let bytes = std::fs::read(work.path().join("host.bc"))?;
            let major = bitcode::producer_major(&bytes);
            expect_equal(
                "producer",
                &format!("{:?}", Some(release.major)),
                &format!("{major:?}"),
            )?;
            let what = format!("LLVM {} {source} {form:?}", release.major);
            compare(&what, &bytes, &mut work.command(llvm("llvm-nm")))?;
        }
    }
    passed()
}

/// Symbols as lines of a letter and a name, against those that `nm` lists of `host.bc`.
fn compare(what: &str, bytes: &[u8], nm: &mut Command) -> Result<(), Failed> {
    let listed = run(nm.args(["--format=posix", "host.bc"]))?;
    let theirs: BTreeSet<String> = listed
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            let (name, kind) = (words.next()?, words.next()?);
            let letter = match kind {
                "U" | "w" | "v" => {
                    if kind == "U" {
                        "U"
                    } else {
                        "w"
                    }
                }
                "W" | "V" => "W",
                "C" => "C",
                // What is seen in its module only.
                _ if kind.starts_with(char::is_lowercase) => return None,
                _ => "D",
            };
            Some(format!("{letter} {name}"))
        })
        .collect();
    let read = bitcode::symbols(bytes).map_err(|fault| format!("{what}: {fault:?}"))?;
    let line = |letter: &str, symbol: &bitcode::Symbol<'_>| {
        format!("{letter} {}", String::from_utf8_lossy(&symbol.name))
    };
    let defined = read
        .defined
        .iter()
        .map(|symbol| match (symbol.common, symbol.weak) {
            (true, _) => line("C", symbol),
            (_, true) => line("W", symbol),
            _ => line("D", symbol),
        });
    let undefined = read
        .undefined
        .iter()
        .map(|symbol| line(if symbol.weak { "w" } else { "U" }, symbol));
    let ours: BTreeSet<String> = defined.chain(undefined).collect();
    if theirs.len() < 8 {
        return Err(format!("{what}: llvm-nm lists next to nothing: {listed}").into());
    }
    let text = |lines: &BTreeSet<String>| lines.iter().cloned().collect::<Vec<_>>().join("\n");
    expect_equal(what, &text(&theirs), &text(&ours))
}

/// Bitcode is made a native object, whose section is what the module embeds.
fn images() -> Outcome {
    let work = Work::new();
    work.file("openmp.c", OPENMP);
    for form in FORMS {
        run(work
            .command(llvm("clang"))
            .args(OFFLOAD)
            .args(form)
            .args(["-fPIC", "-c", "openmp.c", "-o", "host.bc"]))?;
        run(work.command(llvm("llc")).args([
            "-filetype=obj",
            "-relocation-model=pic",
            "host.bc",
            "-o",
            "host.o",
        ]))?;
        let object = std::fs::read(work.path().join("host.o"))?;
        let sections = offload_sections::sections(&object).map_err(|error| error.to_string())?;
        let native: Vec<&[u8]> = sections
            .iter()
            .map(|section| &object[section.offset as usize..][..section.size as usize])
            .collect();
        let bytes = std::fs::read(work.path().join("host.bc"))?;
        let embedded = bitcode::embedded_images(&bytes).map_err(|fault| format!("{fault:?}"))?;
        let embedded: Vec<&[u8]> = embedded.iter().map(|image| &*image.bytes).collect();
        if native.len() != 1 || native != embedded {
            let sizes = |all: &[&[u8]]| all.iter().map(|bytes| bytes.len()).collect::<Vec<_>>();
            return Err(format!(
                "{form:?}: native {:?}, bitcode {:?}",
                sizes(&native),
                sizes(&embedded)
            )
            .into());
        }
    }
    passed()
}

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
        let bytes = damaged_by(&mut random, &good, &good);
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
