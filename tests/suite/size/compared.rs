//! Comparisons with another file and with saved reports, budgets, duplicates, filters and other
//! forms of the report.

use libtest_mimic::Failed;
use libtest_mimic::Trial;

use super::{bytes, row, size};
use crate::kit::{HOST, Image};
use crate::support::{
    Outcome, Work, ensure, expect_equal, expect_in, expect_not_in, llvm, offld, output, passed,
    run, shown, text, with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        with_llvm("size::compared::with_another_file", two_files),
        with_llvm("size::compared::with_what_was_saved", saved),
        with_llvm("size::compared::filters_by_either_name", filtered),
        with_llvm("size::compared::with_renamed_kernels", renamed),
        with_llvm("size::duplicates_of_images_and_kernels", duplicates),
        with_llvm("size::containers_that_are_not_compressed", not_compressed),
        with_llvm("size::markdown_stdin_folders_and_filters", forms),
    ]
}

/// Runs `offld size` with these arguments: exit status, stdout and stderr.
fn offld_size<'a>(
    work: &Work,
    args: impl IntoIterator<Item = &'a str>,
) -> Result<(i32, String, String), Failed> {
    let mut command = work.command(offld());
    command.arg("size").args(args);
    let ended = output(&mut command)?;
    let status = ended.status.code().ok_or_else(|| shown(&command, &ended))?;
    Ok((status, text(&ended.stdout), text(&ended.stderr)))
}

/// Grown, shrunk, added and removed items at every level.
fn two_files() -> Outcome {
    let work = Work::new();
    work.pack(
        "old",
        &[
            Image::hip("gfx90a", &[1; 4000]),
            Image::hip("gfx942", &[2; 3000]),
            Image::hip("gfx1030", &[3; 900]),
        ],
    )?;
    work.pack(
        "new",
        &[
            Image::hip("gfx90a", &[1; 5000]),
            Image::hip("gfx942", &[2; 2000]),
            Image::hip("gfx1100", &[4; 700]),
        ],
    )?;
    let json = size(&work, ["--by", "arch,part", "--diff", "old", "new"])?;
    for (arch, new, old) in [
        ("gfx90a", 5000, 4000),
        ("gfx942", 2000, 3000),
        ("gfx1100", 700, 0),
        ("gfx1030", 0, 900),
    ] {
        let found = row(&json["total"], arch)?;
        expect_equal(
            arch,
            &format!("{new} {old}"),
            &format!("{} {}", found["file"], found["old_file"]),
        )?;
        expect_equal(
            "below it",
            &format!("{new} {old}"),
            &format!(
                "{} {}",
                found["rows"][0]["file"], found["rows"][0]["old_file"]
            ),
        )?;
    }
    let (status, stdout, _) =
        offld_size(&work, ["--by", "arch", "--bytes", "--diff", "old", "new"])?;
    expect_equal("status", "0", &status.to_string())?;
    let line = |arch: &str| {
        stdout
            .lines()
            .find(|line| line.trim_start().starts_with(arch))
            .unwrap_or_default()
            .to_owned()
    };
    expect_in(&line("gfx90a"), "+1000")?;
    expect_in(&line("gfx942"), "-1000")?;
    expect_in(&line("gfx1100"), "+700 new")?;
    expect_in(&line("gfx1030"), "-900 gone")?;
    passed()
}

/// A report from --save compares like the file itself. Another version or a damaged report is an
/// error.
fn saved() -> Outcome {
    let work = Work::new();
    work.pack(
        "old",
        &[
            Image::hip("gfx90a", &[1; 4000]),
            Image::hip("gfx942", &[2; 3000]),
        ],
    )?;
    work.pack("new", &[Image::hip("gfx90a", &[1; 4500])])?;
    offld_size(&work, ["--save", "old.json", "old"])?;
    for by in ["arch", "arch,part,section,container", "kernel"] {
        let of_file = size(&work, ["--by", by, "--diff", "old", "new"])?;
        std::fs::rename(work.path().join("old"), work.path().join("gone"))?;
        let of_saved = size(&work, ["--by", by, "--diff", "old.json", "new"])?;
        std::fs::rename(work.path().join("gone"), work.path().join("old"))?;
        expect_equal(
            by,
            &of_file["total"].to_string(),
            &of_saved["total"].to_string(),
        )?;
    }
    let saved_text = std::fs::read_to_string(work.path().join("old.json"))?;
    work.file(
        "later.json",
        saved_text.replacen("\"schema\":2", "\"schema\":3", 1),
    );
    let (status, _, stderr) = offld_size(&work, ["--diff", "later.json", "new"])?;
    expect_equal("status", "2", &status.to_string())?;
    expect_in(
        &stderr,
        "`later.json`: sizes of version 3, but this offld reads versions up to 2",
    )?;
    let (start, _) = saved_text
        .split_once(",\"mangled\":")
        .ok_or("no names of kernels in the image")?;
    work.file("earlier.json", format!("{start}}}"));
    expect_equal(
        "without names in the image",
        "0",
        &offld_size(&work, ["--diff", "earlier.json", "new"])?
            .0
            .to_string(),
    )?;
    work.file("cut.json", &saved_text[..saved_text.len() / 2]);
    let (status, _, stderr) = offld_size(&work, ["--diff", "cut.json", "new"])?;
    expect_equal("status", "2", &status.to_string())?;
    expect_in(&stderr, "`cut.json`")?;
    work.file(
        "large.json",
        saved_text.replace(",3000]", &format!(",{}]", u64::MAX)),
    );
    let (status, _, stderr) = offld_size(&work, ["--diff", "large.json", "new"])?;
    expect_equal("status", "2", &status.to_string())?;
    expect_in(
        &stderr,
        "`large.json`: damaged: the sum of the sizes is too large",
    )?;
    // An incomplete report cannot be the base of a comparison, saved or not.
    let whole = std::fs::read(work.path().join("old"))?;
    work.file("half", &whole[..whole.len() - 2000]);
    let (status, ..) = offld_size(&work, ["--save", "half.json", "half"])?;
    expect_equal("status", "2", &status.to_string())?;
    for old in ["half", "half.json"] {
        let (status, _, stderr) =
            offld_size(&work, ["--diff", old, "--budget", "growth<1K", "new"])?;
        expect_equal(old, "2", &status.to_string())?;
        expect_in(&stderr, "cannot read the --diff file: half+0x")?;
    }
    passed()
}

/// A filter matches kernels by their source name and their symbol name, also in saved reports. Of
/// several symbols, the first is shown.
fn filtered() -> Outcome {
    let work = Work::new();
    let code: String = ["_ZL4fillPf", "_Z4fillPf", "_Z4fillPd"]
        .map(|name| {
            format!(".globl {name}\n.type {name},@function\n{name}:\ns_endpgm\n.size {name}, 4\n")
        })
        .concat();
    work.file("k.s", code);
    run(work.command(llvm("clang")).args([
        "--target=amdgcn-amd-amdhsa",
        "-mcpu=gfx90a",
        "k.s",
        "-o",
        "k.so",
    ]))?;
    offld_size(&work, ["--save", "old.json", "k.so"])?;
    for filter in ["_Z4fillPf", "fill\\(float\\*\\)"] {
        let json = size(
            &work,
            [
                "--by", "kernel", "--filter", filter, "--diff", "old.json", "k.so",
            ],
        )?;
        expect_equal(filter, "1", &json["total"]["kernels"].to_string())?;
        let kernel = row(row(&json["total"], "fill")?, "fill(float*)")?;
        expect_equal(filter, "\"_Z4fillPf\"", &kernel["mangled"].to_string())?;
        ensure(bytes(kernel) >= 8, || format!("{filter}: {kernel}"))?;
        expect_equal(
            filter,
            &kernel["file"].to_string(),
            &kernel["old_file"].to_string(),
        )?;
    }
    passed()
}

/// Repeated images, the same kernel in two images, and kernels that only look the same.
fn duplicates() -> Outcome {
    let work = Work::new();
    let source = "__attribute__((amdgpu_kernel)) void same(int *p) { p[3] = 5; }\n\
        __attribute__((amdgpu_kernel)) void other(int *p) { p[N] = N; }\n";
    work.file("k.c", source);
    for (n, image) in [("1", "one"), ("2", "two")] {
        let mut compile = work.command(llvm("clang"));
        compile.args([
            "--target=amdgcn-amd-amdhsa",
            "-mcpu=gfx90a",
            "-nogpulib",
            "-O1",
            "-fuse-ld=lld",
            "k.c",
        ]);
        run(compile.arg(format!("-DN={n}")).args(["-o", image]))?;
    }
    let (one, two) = (
        std::fs::read(work.path().join("one"))?,
        std::fs::read(work.path().join("two"))?,
    );
    work.pack(
        "packed",
        &[
            Image::hip("gfx90a", &one),
            Image::hip("gfx90a:xnack+", &one),
            Image::hip("gfx942", &two),
        ],
    )?;
    work.pack("twice", &[Image::hip("gfx90a", &one)])?;
    let packed = [
        std::fs::read(work.path().join("twice"))?,
        std::fs::read(work.path().join("twice"))?,
    ]
    .concat();
    work.file("twice", packed);
    work.pack(
        "alike",
        &[Image::hip("gfx90a", &one), Image::hip("gfx90a", &two)],
    )?;
    // Images for different architectures are not duplicates, even with the same bytes.
    let json = size(&work, ["packed"])?;
    expect_equal(
        "nothing",
        "[] []",
        &format!(
            "{} {}",
            json["duplicates"]["images"], json["duplicates"]["kernels"]
        ),
    )?;
    let json = size(&work, ["twice"])?;
    let image = &json["duplicates"]["images"][0];
    expect_equal("copies", "2", &image["copies"].to_string())?;
    expect_equal(
        "wasted",
        &one.len().to_string(),
        &image["wasted_file"].to_string(),
    )?;
    expect_equal(
        "its kernels are not counted again",
        "[]",
        &json["duplicates"]["kernels"].to_string(),
    )?;
    let json = size(&work, ["alike"])?;
    let kernels = json["duplicates"]["kernels"]
        .as_array()
        .ok_or("no kernels")?;
    expect_equal(
        "one kernel",
        "1 \"same\"",
        &format!("{} {}", kernels.len(), kernels[0]["kernel"]),
    )?;
    expect_equal(
        "wasted",
        &kernels[0]["size"].to_string(),
        &kernels[0]["wasted_file"].to_string(),
    )?;
    // With several files, each location names its file.
    work.pack("again", &[Image::hip("gfx90a", &one)])?;
    work.pack("first", &[Image::hip("gfx90a", &one)])?;
    let json = size(&work, ["again", "first"])?;
    let places = "[\"again: offload-binary at 0x0\",\"first: offload-binary at 0x0\"]";
    expect_equal(
        "places",
        places,
        &json["duplicates"]["images"][0]["places"].to_string(),
    )?;
    // The report lists only a few duplicates by default.
    let many: Vec<[u8; 400]> = (10..16).map(|byte| [byte; 400]).collect();
    work.pack(
        "many",
        &many
            .iter()
            .chain(&many)
            .map(|bytes| Image::hip("gfx90a", bytes))
            .collect::<Vec<_>>(),
    )?;
    let (_, few, _) = offld_size(&work, ["many"])?;
    expect_in(
        &few,
        "Repeated images: up to 2.3K in the file (2.3K uncompressed) could be saved",
    )?;
    expect_in(&few, "\n  3 more, 1.2K (pass --duplicates to list them)\n")?;
    let (_, all, _) = offld_size(&work, ["--duplicates", "many"])?;
    expect_not_in(&all, " more, ")?;
    expect_equal(
        "rows",
        "6",
        &all.lines()
            .filter(|line| line.starts_with("   ") && line.contains("  2  "))
            .count()
            .to_string(),
    )?;
    // Duplicates with equal savings have the same order in every run.
    let images: Vec<[u8; 500]> = (0..6).map(|byte| [byte; 500]).collect();
    work.pack(
        "pairs",
        &images
            .iter()
            .chain(&images)
            .map(|bytes| Image::hip("gfx90a", bytes))
            .collect::<Vec<_>>(),
    )?;
    let first = size(&work, ["pairs"])?["duplicates"].clone();
    expect_equal(
        "pairs",
        "6",
        &first["images"].as_array().map_or(0, Vec::len).to_string(),
    )?;
    for _ in 0..4 {
        expect_equal(
            "another run",
            &first.to_string(),
            &size(&work, ["pairs"])?["duplicates"].to_string(),
        )?;
    }
    passed()
}

/// The estimate of possible savings by zstd is close to the real savings.
fn not_compressed() -> Outcome {
    let work = Work::new();
    let text: String = (0..60_000)
        .map(|number| format!("{} ", number * 7919 % 10_007))
        .collect();
    work.pack(
        "plain",
        &[
            Image::hip("gfx90a", text.as_bytes()),
            Image::hip("gfx942", text.as_bytes()),
        ],
    )?;
    let json = size(&work, ["plain"])?;
    let found = &json["duplicates"]["not_compressed"][0];
    expect_equal("of", "\"offload-binary\"", &found["container"].to_string())?;
    let saved = found["estimated_saving"].as_u64().ok_or("no estimate")?;
    ensure(
        saved > text.len() as u64 / 2 && saved < 2 * text.len() as u64,
        || format!("{saved} of {}", 2 * text.len()),
    )?;
    work.file("one", &text);
    work.file("host", "");
    let bundle = |more: &[&str], out: &str| {
        let mut command = work.command(llvm("clang-offload-bundler"));
        command.args([
            "-type=bc",
            "-targets=host-x86_64-unknown-linux-gnu,hip-amdgcn-amd-amdhsa--gfx90a",
            "-input=host",
            "-input=one",
        ]);
        run(command.args(more).arg(format!("-output={out}")))
    };
    bundle(&[], "bundle")?;
    bundle(&["-compress"], "ccob")?;
    let json = size(&work, ["bundle"])?;
    expect_equal(
        "a bundle",
        "\"bundle\"",
        &json["duplicates"]["not_compressed"][0]["container"].to_string(),
    )?;
    let json = size(&work, ["ccob"])?;
    expect_equal(
        "a compressed one",
        "[]",
        &json["duplicates"]["not_compressed"].to_string(),
    )?;
    passed()
}

/// Markdown without unwanted markup, stdin, directories, filters, and order by uncompressed size.
fn forms() -> Outcome {
    let work = Work::new();
    work.pack(
        "a|b*",
        &[
            Image::hip("gfx90a", &[1; 4000]),
            Image::cuda("sm_90", &[7; 100]),
        ],
    )?;
    let (status, markdown, _) = offld_size(&work, ["--markdown", "a|b*"])?;
    expect_equal("status", "0", &status.to_string())?;
    expect_in(&markdown, "**a\\|b\\***: offload-binary")?;
    expect_in(&markdown, "| gfx90a | 1 |")?;
    // Summary rows have as many cells as the other rows.
    for args in [
        &["--markdown", "--top", "1", "a|b*"][..],
        &["--markdown", "--top", "1", "--diff", "a|b*", "a|b*"],
    ] {
        let (_, markdown, _) = offld_size(&work, args.iter().copied())?;
        let cells: Vec<usize> = markdown
            .lines()
            .filter(|line| line.starts_with('|'))
            .map(|line| line.matches('|').count())
            .collect();
        expect_in(&markdown, " more |")?;
        ensure(cells.iter().all(|count| *count == cells[0]), || {
            markdown.clone()
        })?;
    }
    work.pack("\u{202e}b\n", &[Image::hip("gfx90a", &[1; 4000])])?;
    expect_in(
        &offld_size(&work, ["--markdown", "\u{202e}b\n"])?.1,
        "**\\\\u{202e}b\\\\n**: offload-binary",
    )?;
    let mut command = work.command(offld());
    command
        .args(["size", "--json", "-"])
        .stdin(std::fs::File::open(work.path().join("a|b*"))?);
    let json: serde_json::Value = serde_json::from_str(&run(&mut command)?)?;
    expect_equal(
        "stdin",
        "4000",
        &bytes(row(&json["total"], "gfx90a")?).to_string(),
    )?;
    std::fs::create_dir_all(work.path().join("folder/inner"))?;
    std::fs::copy(
        work.path().join("a|b*"),
        work.path().join("folder/inner/one"),
    )?;
    work.file("folder/text", "no device code");
    let json = size(&work, ["--by", "file,arch", "folder"])?;
    expect_equal(
        "files with device code",
        "1",
        &json["total"]["rows"]
            .as_array()
            .map_or(0, Vec::len)
            .to_string(),
    )?;
    let json = size(&work, ["--filter", "GFX9", "a|b*"])?;
    expect_equal("filtered", "4000", &bytes(&json["total"]).to_string())?;
    let (status, _, stderr) = offld_size(&work, ["--filter", "gfx11", "a|b*"])?;
    expect_equal("nothing is left", "0", &status.to_string())?;
    expect_in(&stderr, "warning: nothing matches `gfx11` of --filter")?;
    let (status, _, stderr) = offld_size(&work, ["--filter", "(", "--save", "saved", "a|b*"])?;
    expect_equal("a filter that is none", "2", &status.to_string())?;
    expect_in(&stderr, "--filter")?;
    ensure(
        !work.path().join("saved").exists(),
        || "something was written for a command line that is wrong",
    )?;
    work.pack(
        "host",
        &[Image {
            triple: HOST,
            arch: "",
            kind: "openmp",
            bytes: b"x",
        }],
    )?;
    let json = size(&work, ["host"])?;
    row(&json["total"], HOST)?;
    passed()
}

/// A kernel that `offld diff` calls renamed is one row of both files: the only instance of a
/// template, and a region of OpenMP on another line.
fn renamed() -> Outcome {
    let work = Work::new();
    for (name, of, line, value) in [("old.co", "i", 12, 1), ("new.co", "l", 14, 2)] {
        work.file(
            "kernels.cpp",
            format!(
                "#define KERNEL __attribute__((amdgpu_kernel)) void\n\
                 KERNEL only(int *p) __asm__(\"_Z4onlyI{of}EvPT_\");\n\
                 KERNEL only(int *p) {{ *p = 3; }}\n\
                 extern \"C\" KERNEL __omp_offloading_10_2__Z5scalePfi_l{line}(int *p) {{ *p = {value}; }}\n\
                 extern \"C\" KERNEL same(int *p) {{ *p = 5; }}\n"
            ),
        );
        run(work
            .command(llvm("clang"))
            .args(["-target", "amdgcn-amd-amdhsa", "-mcpu=gfx90a"])
            .args(["-nogpulib", "-O2", "kernels.cpp", "-o", name]))?;
    }
    let json = size(&work, ["--by", "kernel", "--diff", "old.co", "new.co"])?;
    let mut kernels = Vec::new();
    for template in json["total"]["rows"].as_array().ok_or("no rows")? {
        for kernel in template["rows"].as_array().into_iter().flatten() {
            kernels.push(kernel);
        }
    }
    for name in [
        "void only<long>(long*)",
        "scale(float*, int), line 14",
        "same",
    ] {
        let of_name = kernels.iter().filter(|row| row["name"] == name);
        let rows: Vec<_> = of_name.collect();
        ensure(
            rows.len() == 1 && bytes(&rows[0]["file"]) > 0 && bytes(&rows[0]["old_file"]) > 0,
            || format!("{name}: {json:#}"),
        )?;
    }
    expect_not_in(&json.to_string(), "line 12")?;
    passed()
}
