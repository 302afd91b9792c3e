//! The commands of README.md and docs/, run as they stand there: every block with the remark `<!-- run -->`, in a folder with the files that the
//! pages speak of. What a `console` block shows has to be what is printed, but for numbers. And what other remarks say is so: the tests
//! that they name are there, and every command and topic of offld that a page names.

#[path = "../docs/blocks.rs"]
mod blocks;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use libtest_mimic::{Failed, Trial};

use super::support::{
    LLVM, Outcome, Work, ensure, expect_equal, llvm, made, offld, output, passed, root, run, shown, test, text, with_llvm,
};
use blocks::{Block, blocks};

/// A test for each page with commands that are run, and those of what all pages say. `others` are the suite's other tests.
pub(crate) fn trials(others: &[Trial]) -> Vec<Trial> {
    let names: Vec<String> = others.iter().map(|trial| trial.name().to_owned()).collect();
    let mut trials = vec![
        test("docs::tests_that_are_named_are_there", move || named_tests(&names)),
        test("docs::commands_and_topics_that_are_named_are_there", named_commands),
    ];
    for (page, document) in pages() {
        if blocks(&document).iter().any(is_run) {
            trials.push(with_llvm(&format!("docs::{page}"), move || all_of(&page, &document)));
        }
    }
    trials
}

fn is_run(block: &Block) -> bool {
    block.mark.as_deref().is_some_and(|mark| mark == "run" || mark.starts_with("run: "))
}

/// README.md and the pages of docs/, by their paths from the root.
fn pages() -> Vec<(String, String)> {
    let folder = std::fs::read_dir(root().join("docs")).into_iter().flatten().flatten();
    let names = folder.map(|entry| format!("docs/{}", entry.file_name().to_string_lossy())).filter(|name| name.ends_with(".md"));
    let mut names: Vec<String> = names.chain(["README.md".to_owned()]).collect();
    names.sort();
    let read = |name: String| std::fs::read_to_string(root().join(&name)).ok().map(|text| (name, text));
    names.into_iter().filter_map(read).collect()
}

fn named_tests(names: &[String]) -> Outcome {
    let mut wrong = Vec::new();
    for (page, document) in pages() {
        for block in blocks(&document) {
            let named =
                block.mark.as_deref().and_then(|mark| mark.strip_prefix("test: ")).into_iter().flat_map(|all| all.split(", "));
            // Of `edit::real_files` there are only those whose files are here.
            let is_there = |name: &str| {
                let of_that_name =
                    |own: &String| own.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"));
                names.iter().any(of_that_name) || name.contains('/') && root().join(name).is_file()
            };
            wrong.extend(named.filter(|name| !is_there(name)).map(|name| format!("{page}:{}: {name}", block.line)));
        }
    }
    ensure(wrong.is_empty(), || format!("no such tests:\n{}", wrong.join("\n")))?;
    passed()
}

/// `offld WORD` in the text of a page is a command, a topic or a name of offld's, which `offld help` knows.
fn named_commands() -> Outcome {
    let mut named = BTreeSet::new();
    for (_, document) in pages() {
        let code = document.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
        let words = code.filter_map(|code| code.strip_prefix("offld ")).map(|rest| rest.strip_prefix("help ").unwrap_or(rest));
        let first = words.map(|rest| rest.split_whitespace().next().unwrap_or_default().to_owned());
        named.extend(first.filter(|word| word.starts_with(|c: char| c.is_ascii_lowercase())));
    }
    ensure(named.len() > 15, || format!("few commands are named: {named:?}"))?;
    let work = Work::new();
    for word in named {
        run(work.command(offld()).args(["help", &word]))?;
    }
    passed()
}

/// Runs the blocks of a page, one after the other, in one folder.
fn all_of(page: &str, document: &str) -> Outcome {
    let work = Work::new();
    run(work.command("cp").arg("-a").arg(format!("{}/.", files()?.display())).arg("."))?;
    for block in blocks(document).iter().filter(|block| is_run(block)) {
        let place = |failed: Failed| format!("{page}:{}: {}", block.line, failed.message().unwrap_or_default());
        let status = block.mark.as_deref().and_then(|mark| mark.strip_prefix("run: ends with ")).unwrap_or("0");
        if block.info.as_deref() == Some("console") {
            session(&work, &block.text, status).map_err(place)?;
        } else {
            printed(&work, &block.text, status).map_err(place)?;
        }
    }
    passed()
}

/// A shell in which the names of the pages are there: `offld` and the names that it is called by, LLVM's tools with and without the
/// release, and `DIR`, which is replaced.
fn shell(work: &Work, script: &str) -> Result<Command, Failed> {
    let links = made().links.display().to_string();
    let bin = offld().parent().map(PathBuf::from).ok_or("no folder")?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = [bin, made().links.clone(), PathBuf::from(LLVM)].into_iter().chain(std::env::split_paths(&path));
    let mut shell = work.command("bash");
    shell.args(["-euc", &script.replace("DIR", &links)]).env("PATH", std::env::join_paths(folders)?);
    let home = work.path().join("home");
    std::fs::create_dir_all(&home)?;
    // Root takes no cache of its own below a folder of everybody's, which TMPDIR is; one that is named it takes.
    shell.env("OFFLD_CACHE", home.join(".cache/offld")).env("HOME", home).env("LD_LIBRARY_PATH", "/usr/lib/llvm-22/lib:.");
    Ok(shell)
}

/// What a script prints that ends as it should.
fn printed(work: &Work, script: &str, status: &str) -> Result<String, Failed> {
    let mut shell = shell(work, script)?;
    let ended = output(&mut shell)?;
    let is_right = ended.status.code().is_some_and(|code| code.to_string() == status);
    ensure(is_right, || shown(&shell, &ended))?;
    Ok(text(&ended.stdout) + &text(&ended.stderr))
}

/// Commands after `$ `, each with what it prints below it. A line `…` stands for any lines, and `…` in a line for anything.
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
                parts.iter().try_fold(found.as_str(), |rest, part| rest.split_once(part.trim()).map(|(_, rest)| rest)).is_some()
            };
            ensure(actual.any(fits), || format!("`{line}` is not printed where it is shown:\n{prints}"))?;
        }
        if !wanted.contains(&"…") {
            let printed = prints.lines().filter(|line| !line.is_empty()).count();
            expect_equal("lines", &wanted.len().to_string(), &printed.to_string())?;
        }
    }
    Ok(())
}

/// A line with `#` for each number, with what is written of it (`7.8K`, `65.3%`) or of a digest, and single spaces.
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
            let end = rest[at..].find(|c: char| !c.is_ascii_digit() && c != '.').map_or(rest.len(), |end| at + end);
            let unit = usize::from(!of_name && rest[end..].starts_with(['K', 'M', 'G']));
            // Numbers that are part of a name are a part of it: gfx90a, x86_64.
            text.push_str(if of_name { &rest[..end] } else { &rest[..at] });
            text.push_str(if of_name { "" } else { "#" });
            rest = &rest[end + unit..];
        }
        text + rest
    };
    line.split_whitespace().map(word).collect::<Vec<_>>().join(" ")
}

/// The files that pages speak of, once for all pages.
fn files() -> Result<&'static Path, Failed> {
    static FILES: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let made = FILES.get_or_init(|| make_files().map_err(|failed| failed.message().unwrap_or_default().to_owned()));
    made.as_deref().map_err(|failed| Failed::from(failed.clone()))
}

/// The source of HIP libraries, which needs no ROCm.
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
/// What names of pages are made by. `LINKS` is the folder with offld's names.
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
    let readme = std::fs::read_to_string(root().join("README.md"))?;
    let saxpy =
        readme.split("<<'END'\n").nth(1).and_then(|rest| rest.split("END\n").next()).ok_or("no saxpy.cpp in README.md")?;
    std::fs::write(folder.join("saxpy.cpp"), saxpy)?;
    std::fs::write(folder.join("kernels.hip"), KERNELS)?;
    let stubs = root().join("runtime-stubs");
    let script = MAKE.replace("LINKS", &made().links.display().to_string()).replace("STUBS", &stubs.display().to_string());
    let work = Work::new();
    let path = format!("{LLVM}:{}", std::env::var("PATH").unwrap_or_default());
    ensure(llvm("clang").is_file(), || "no clang")?;
    run(work.command("bash").args(["-euc", &script]).current_dir(&folder).env("PATH", path))?;
    Ok(folder)
}
