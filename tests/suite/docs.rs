//! Runs the commands of README.md and docs/ unchanged: every block with the mark `<!-- run -->`, in
//! a directory with the files that the pages mention. The output in a `console` block must equal
//! the printed output, except for numbers. Tests in other marks must exist, as must every command
//! and topic of offld that a page mentions.

#[path = "../docs/blocks.rs"]
pub(super) mod blocks;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use libtest_mimic::{Failed, Trial};

use super::support::{
    LLVM, Outcome, Work, ensure, expect_equal, llvm, made, offld, output, passed, root, run, shown,
    test, text, with_llvm,
};
use blocks::{Block, blocks};

/// A test for each page with commands that run, and two for all pages. `others` are the suite's
/// other tests.
pub(crate) fn trials(others: &[Trial]) -> Vec<Trial> {
    let names: Vec<String> = others.iter().map(|trial| trial.name().to_owned()).collect();
    let mut trials = vec![
        test("docs::tests_that_are_named_are_there", move || {
            named_tests(&names)
        }),
        test(
            "docs::commands_and_topics_that_are_named_are_there",
            named_commands,
        ),
    ];
    for (page, document) in pages() {
        if blocks(&document).iter().any(is_run) {
            trials.push(with_llvm(&format!("docs::{page}"), move || {
                run_page(&page, &document)
            }));
        }
    }
    trials
}

fn is_run(block: &Block) -> bool {
    block
        .mark
        .as_deref()
        .is_some_and(|mark| mark == "run" || mark.starts_with("run: "))
}

/// README.md and the pages below docs/, except for the specifications: paths from the root, and
/// contents.
fn pages() -> Vec<(String, String)> {
    let mut names = vec!["README.md".to_owned()];
    let mut folders = vec!["docs".to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(root().join(&folder))
            .into_iter()
            .flatten()
            .flatten()
        {
            let name = format!("{folder}/{}", entry.file_name().to_string_lossy());
            if entry.path().is_dir() && name != "docs/spec" {
                folders.push(name);
            } else if name.ends_with(".md") {
                names.push(name);
            }
        }
    }
    names.sort();
    let read = |name: String| {
        std::fs::read_to_string(root().join(&name))
            .ok()
            .map(|text| (name, text))
    };
    names.into_iter().filter_map(read).collect()
}

fn named_tests(names: &[String]) -> Outcome {
    let mut wrong = Vec::new();
    for (page, document) in pages() {
        for block in blocks(&document) {
            let named = block
                .mark
                .as_deref()
                .and_then(|mark| mark.strip_prefix("test: "))
                .into_iter()
                .flat_map(|all| all.split(", "));
            // A mark may name a module of tests, or a script. `edit::real_files` only has tests for
            // downloaded files.
            let exists = |name: &str| {
                let matches = |trial: &String| {
                    trial
                        .strip_prefix(name)
                        .is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
                };
                names.iter().any(matches) || name.contains('/') && root().join(name).is_file()
            };
            wrong.extend(
                named
                    .filter(|name| !exists(name))
                    .map(|name| format!("{page}:{}: {name}", block.line)),
            );
        }
    }
    ensure(wrong.is_empty(), || {
        format!("no such tests:\n{}", wrong.join("\n"))
    })?;
    passed()
}

/// Checks that every `offld WORD` in a page is a command, a topic or a tool name that `offld help`
/// knows.
fn named_commands() -> Outcome {
    let mut named = BTreeSet::new();
    for (_, document) in pages() {
        let code = document
            .lines()
            .flat_map(|line| line.split('`').skip(1).step_by(2));
        let words = code
            .filter_map(|code| code.strip_prefix("offld "))
            .map(|rest| rest.strip_prefix("help ").unwrap_or(rest));
        let first = words.map(|rest| {
            rest.split_whitespace()
                .next()
                .unwrap_or_default()
                .to_owned()
        });
        named.extend(first.filter(|word| word.starts_with(|c: char| c.is_ascii_lowercase())));
    }
    ensure(named.len() > 15, || {
        format!("few commands are named: {named:?}")
    })?;
    let work = Work::new();
    for word in named {
        run(work.command(offld()).args(["help", &word]))?;
    }
    passed()
}

/// Runs the blocks of a page one after the other, in one directory.
fn run_page(page: &str, document: &str) -> Outcome {
    let work = Work::new();
    run(work
        .command("cp")
        .arg("-a")
        .arg(format!("{}/.", files()?.display()))
        .arg("."))?;
    for block in blocks(document).iter().filter(|block| is_run(block)) {
        let place = |failed: Failed| {
            format!(
                "{page}:{}: {}",
                block.line,
                failed.message().unwrap_or_default()
            )
        };
        let status = block
            .mark
            .as_deref()
            .and_then(|mark| mark.strip_prefix("run: ends with "))
            .unwrap_or("0");
        if block.info.as_deref() == Some("console") {
            session(&work, &block.text, status).map_err(place)?;
        } else {
            printed(&work, &block.text, status).map_err(place)?;
        }
    }
    passed()
}

/// A shell with the programs of the pages in `PATH`: `offld` and its tool links, and LLVM's tools
/// with and without the release number. `DIR` in the script is replaced by the directory of tool
/// links.
fn shell(work: &Work, script: &str) -> Result<Command, Failed> {
    let links = made().links.display().to_string();
    let bin = offld().parent().map(PathBuf::from).ok_or("no folder")?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = [bin, made().links.clone(), PathBuf::from(LLVM)]
        .into_iter()
        .chain(std::env::split_paths(&path));
    let mut shell = work.command("bash");
    shell
        .args(["-euc", &script.replace("DIR", &links)])
        .env("PATH", std::env::join_paths(folders)?);
    let home = work.path().join("home");
    std::fs::create_dir_all(&home)?;
    // As root, offld uses no default cache below a directory that others may write to, such as
    // TMPDIR, so the cache is set.
    shell
        .env("OFFLD_CACHE", home.join(".cache/offld"))
        .env("HOME", home)
        .env("LD_LIBRARY_PATH", "/usr/lib/llvm-22/lib:.");
    Ok(shell)
}

/// Runs a script, which must end with `status`, and returns its output.
fn printed(work: &Work, script: &str, status: &str) -> Result<String, Failed> {
    let mut shell = shell(work, script)?;
    let ended = output(&mut shell)?;
    let is_right = ended
        .status
        .code()
        .is_some_and(|code| code.to_string() == status);
    ensure(is_right, || shown(&shell, &ended))?;
    Ok(text(&ended.stdout) + &text(&ended.stderr))
}

/// Runs the commands after `$ ` and compares the lines below each with its output. A line `…`
/// matches any lines, and `…` in a line any text.
fn session(work: &Work, block: &str, status: &str) -> Result<(), Failed> {
    let block = format!("\n{block}");
    let commands: Vec<&str> = block.split("\n$ ").skip(1).collect();
    ensure(!commands.is_empty(), || "no command begins with `$ `")?;
    for command in commands {
        let (line, shows) = command.split_once('\n').unwrap_or((command, ""));
        let prints = printed(work, line, status)?;
        let mut actual = prints.lines().map(without_numbers);
        let wanted: Vec<&str> = shows.lines().filter(|line| !line.is_empty()).collect();
        for line in wanted.iter().filter(|line| **line != "…") {
            let parts: Vec<String> = line.split('…').map(without_numbers).collect();
            let fits = |found: String| {
                parts
                    .iter()
                    .try_fold(found.as_str(), |rest, part| {
                        rest.split_once(part.trim()).map(|(_, rest)| rest)
                    })
                    .is_some()
            };
            ensure(actual.any(fits), || {
                format!("`{line}` is not printed where it is shown:\n{prints}")
            })?;
        }
        if !wanted.contains(&"…") {
            let printed = prints.lines().filter(|line| !line.is_empty()).count();
            expect_equal("lines", &wanted.len().to_string(), &printed.to_string())?;
        }
    }
    Ok(())
}

/// A line with `#` for each number with its unit (`7.8K`) and for each digest, and with single
/// spaces.
fn without_numbers(line: &str) -> String {
    let is_digest = |word: &str| word.len() == 12 && word.chars().all(|c| c.is_ascii_hexdigit());
    let word = |word: &str| {
        if is_digest(word) {
            return "#".to_owned();
        }
        let mut text = String::new();
        let mut rest = word;
        while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
            let of_name = rest[..at].ends_with(|c: char| c.is_alphabetic() || c == '_');
            let end = rest[at..]
                .find(|c: char| !c.is_ascii_digit() && c != '.')
                .map_or(rest.len(), |end| at + end);
            let unit = usize::from(!of_name && rest[end..].starts_with(['K', 'M', 'G']));
            // Numbers in names stay: gfx90a, x86_64.
            text.push_str(if of_name { &rest[..end] } else { &rest[..at] });
            text.push_str(if of_name { "" } else { "#" });
            rest = &rest[end + unit..];
        }
        text + rest
    };
    line.split_whitespace()
        .map(word)
        .collect::<Vec<_>>()
        .join(" ")
}

/// The directory of the files that pages mention, created once for all pages.
fn files() -> Result<&'static Path, Failed> {
    static FILES: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let made = FILES.get_or_init(|| {
        make_files().map_err(|failed| failed.message().unwrap_or_default().to_owned())
    });
    made.as_deref()
        .map_err(|failed| Failed::from(failed.clone()))
}

/// The source of HIP libraries, which compiles without ROCm.
const KERNELS: &str = "#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
typedef struct hipStream *hipStream_t;
struct dim3 { unsigned x, y, z; };
extern \"C\" int hipLaunchKernel(const void *, dim3, dim3, void **, unsigned long, hipStream_t);
extern \"C\" int __hipPopCallConfiguration(dim3 *, dim3 *, unsigned long *, hipStream_t *);
__global__ void add(int *data, int what) {
  __shared__ int parts[64];
  parts[__builtin_amdgcn_workitem_id_x() & 63] = data[0];
  __builtin_amdgcn_s_barrier();
  data[0] += parts[what & 63];
}
__global__ void scale(float *data, float by, int count) {
  for (int at = 0; at < count; at++)
    data[at] *= by;
}
";
/// A script that creates the files of the pages. `LINKS` stands for the directory of tool links,
/// `STUBS` for the runtime stubs.
const MAKE: &str = "
hip='-x hip --offload-new-driver -nogpuinc -nogpulib -O2 -fPIC -fgpu-rdc -cuid=kernels'
build() { clang++ -B LINKS $hip --offload-arch=$1 -c kernels.hip -o kernels.o
  clang++ -B LINKS --offload-new-driver --hip-link --offload-arch=$1 -nogpulib -fgpu-rdc -shared kernels.o -L. ${2-} -Wl,-soname,$3 -o $3; }
clang -shared -fPIC -Wl,-soname,libamdhip64.so.6 STUBS/hip.c -o libamdhip64.so.6
ln -s libamdhip64.so.6 libamdhip64.so
build gfx90a,gfx942,gfx1100 '' libhip.so
cp kernels.o host.o; cp host.o gpu.o; cp host.o a.o
ar rc lib.a kernels.o
build gfx90a --offload-compress libk.so
for arch in gfx90a gfx942 gfx1100; do mkdir $arch; build $arch '' libsum.so; mv libsum.so $arch/; done
clang++ -B LINKS -fopenmp -fopenmp-targets=x86_64-pc-linux-gnu -c saxpy.cpp -o openmp.o
clang++ -B LINKS -fopenmp -fopenmp-targets=x86_64-pc-linux-gnu saxpy.cpp -o program
cp gpu.o app.hipfb; cp gpu.o a.out; cp host.o b.out
rm kernels.o
";

fn make_files() -> Result<PathBuf, Failed> {
    let folder = made().shared("docs");
    std::fs::create_dir_all(&folder)?;
    let tutorial = std::fs::read_to_string(root().join("docs/tutorials/first-program.md"))?;
    let saxpy = tutorial
        .split("<<'END'\n")
        .nth(1)
        .and_then(|rest| rest.split("END\n").next())
        .ok_or("no saxpy.cpp in the tutorial")?;
    std::fs::write(folder.join("saxpy.cpp"), saxpy)?;
    std::fs::write(folder.join("kernels.hip"), KERNELS)?;
    let stubs = root().join("runtime-stubs");
    let script = MAKE
        .replace("LINKS", &made().links.display().to_string())
        .replace("STUBS", &stubs.display().to_string());
    let work = Work::new();
    let path = format!("{LLVM}:{}", std::env::var("PATH").unwrap_or_default());
    ensure(llvm("clang").is_file(), || "no clang")?;
    run(work
        .command("bash")
        .args(["-euc", &script])
        .current_dir(&folder)
        .env("PATH", path))?;
    Ok(folder)
}
