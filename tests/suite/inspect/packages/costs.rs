//! The cost of archives and compressed files: data that expands without end, memory, and the bytes
//! that `offld size` counts in them.

use std::process::Command;

use libtest_mimic::Failed;
use serde_json::Value;

use super::{inspected, shell, with_object};
use crate::kit::{AMD, Image};
use crate::support::{
    Outcome, Work, at_most_memory, ensure, expect_equal, expect_in, offld, passed, run,
};

pub(super) fn bombs() -> Outcome {
    let work = with_object()?;
    // 300 MB of zeros without device code, which must be decompressed from a few kilobytes.
    shell(
        &work,
        "truncate -s 300M zeros; tar -c k.o zeros pkg/k.o | zstd -q > zeros.tar.zst; rm zeros",
    )?;
    let (status, stdout, stderr) = inspected(&work, &["zeros.tar.zst"])?;
    expect_equal("status", "Some(2)", &format!("{status:?}"))?;
    let most = "more than 1000 times its size";
    expect_in(
        &stderr,
        &format!("zeros.tar.zst: zstd: not unpacked: the file would unpack to {most}"),
    )?;
    expect_equal("one line", "1", &stderr.lines().count().to_string())?;
    expect_in(&stdout, "(k.o)")?;
    // The same as a single file that starts like an object.
    shell(
        &work,
        "(cat k.o; head -c 300000000 /dev/zero) | zstd -q > zeros.o.zst",
    )?;
    expect_in(
        &inspected(&work, &["zeros.o.zst"])?.2,
        &format!("zeros.o.zst: zstd: not unpacked: the file would unpack to {most}"),
    )?;
    // A sparse file of 1 TiB.
    shell(
        &work,
        "cp k.o large.o; truncate -s 1T large.o; tar -cSf sparse.tar large.o k.o; gzip -k sparse.tar; rm large.o",
    )?;
    for file in ["sparse.tar", "sparse.tar.gz"] {
        let (_, stdout, stderr) = inspected(&work, &[file])?;
        expect_in(
            &stderr,
            &format!("{file}(large.o): not unpacked: the file would unpack to {most}"),
        )?;
        expect_in(&stdout, "(k.o)")?;
    }
    // With a limit set by the user.
    shell(
        &work,
        "(cat k.o; head -c 3000000 /dev/urandom) > pkg/large.o; tar -czf x.tgz --sort=name pkg",
    )?;
    let (_, stdout, stderr) = inspected(&work, &["--max-unpacked=2M", "x.tgz"])?;
    let limit = "more than the 2097152 bytes of --max-unpacked; raise that limit";
    expect_in(
        &stderr,
        &format!("x.tgz: gzip: not unpacked: the file would unpack to {limit}"),
    )?;
    expect_in(&stdout, "(pkg/k.o)")?;
    expect_equal(
        "with more",
        "",
        &inspected(&work, &["--max-unpacked=4MB", "x.tgz"])?.2,
    )?;
    let (status, _, stderr) = inspected(&work, &["--max-unpacked=4X", "x.tgz"])?;
    expect_equal("a size that is none", "Some(2)", &format!("{status:?}"))?;
    expect_in(&stderr, "--max-unpacked: invalid size '4X'")?;
    work.expect_no_temps()?;
    passed()
}

pub(super) fn memory() -> Outcome {
    const LARGE: usize = 48 << 20;
    let work = Work::new();
    let mut image = Vec::with_capacity(LARGE);
    (0..LARGE as u32 / 4).for_each(|number| {
        image.extend((number.wrapping_mul(2_654_435_761) & 0xffff).to_le_bytes())
    });
    work.fat(
        "k.o",
        &[Image {
            triple: AMD,
            arch: "gfx90a",
            kind: "hip",
            bytes: &image,
        }],
    )?;
    drop(image);
    shell(
        &work,
        "tar -cf x.tar k.o; gzip -1k x.tar; zstd -q x.tar; xz -1kc x.tar > x.tar.xz; gzip -1k k.o",
    )?;
    for file in ["x.tar", "x.tar.gz", "x.tar.zst", "x.tar.xz", "k.o.gz"] {
        at_most_memory(command(&work).arg(file), 40)?;
    }
    at_most_memory(command(&work).args(["--extract", "out", "x.tar.gz"]), 40)?;
    work.expect_no_temps()?;
    passed()
}

fn command(work: &Work) -> Command {
    let mut command = work.command(offld());
    command.arg("inspect");
    command
}

/// `offld size` counts all bytes of a tar archive, of the compressed archive, and of zip files.
pub(super) fn sizes() -> Outcome {
    let work = with_object()?;
    work.file("pkg/other", "same");
    work.file("pkg/long", "x".repeat(100_000));
    shell(
        &work,
        "tar -cf x.tar pkg; for program in gzip xz zstd bzip2; do $program -c x.tar > x.$program; done; gzip -k k.o; ar rc x.deb x.gzip k.o",
    )?;
    shell(
        &work,
        "python3 -c 'import zipfile\nz = zipfile.ZipFile(\"x.zip\", \"w\", 8)\nfor name in (\"text\", \"other\", \"long\", \"k.o\"): z.write(\"pkg/\" + name)'",
    )?;
    let size = |name: &str| std::fs::metadata(work.path().join(name)).map_or(0, |meta| meta.len());
    let counted = |file: &str| -> Result<(u64, u64), Failed> {
        let report: Value =
            serde_json::from_str(&run(work.command(offld()).args(["size", "--json", file]))?)?;
        let number = |name: &str| {
            report["total"][name]
                .as_u64()
                .ok_or_else(|| format!("no {name} in {report}"))
        };
        Ok((number("file")?, number("inflated")?))
    };
    for file in ["x.tar", "x.gzip", "x.xz", "x.zstd", "x.bzip2"] {
        expect_equal(
            file,
            &format!("({}, {})", size(file), size("x.tar")),
            &format!("{:?}", counted(file)?),
        )?;
    }
    expect_equal(
        "k.o.gz",
        &format!("({}, {})", size("k.o.gz"), size("k.o")),
        &format!("{:?}", counted("k.o.gz")?),
    )?;
    let inflated = size("x.deb") - size("x.gzip") + size("x.tar");
    expect_equal(
        "x.deb",
        &format!("({}, {inflated})", size("x.deb")),
        &format!("{:?}", counted("x.deb")?),
    )?;
    // The uncompressed size of a zip file includes its own headers.
    let (file, inflated) = counted("x.zip")?;
    expect_equal("x.zip", &size("x.zip").to_string(), &file.to_string())?;
    let members: u64 = ["pkg/text", "pkg/other", "pkg/long", "k.o"]
        .map(size)
        .iter()
        .sum();
    ensure(inflated > members && inflated < members + 1000, || {
        format!("{inflated} bytes of {members}")
    })?;
    passed()
}

/// A pipe with a slow writer. On a terminal, a progress bar is shown and cleared before the report.
/// Elsewhere there is none.
pub(super) fn progress() -> Outcome {
    let work = with_object()?;
    // The writer waits for a reader, so nothing that can fail may run between the two.
    let python = "import os, pty, subprocess, sys\nos.mkfifo('pipe')\nwriter = \"sleep 2; cat k.o > pipe\"\n\
        primary, secondary = pty.openpty()\nsubprocess.Popen(['sh', '-c', writer])\n\
        process = subprocess.Popen([sys.argv[1], 'inspect', '--json', 'pipe'], stderr=secondary, stdout=subprocess.PIPE)\n\
        os.close(secondary)\nshown = b''\n\
        try:\n    while part := os.read(primary, 65536): shown += part\nexcept OSError: pass\n\
        print(repr(shown), process.stdout.read().decode())";
    let script = work.file("terminal.py", python);
    // offld shows no progress bar if TERM is not set.
    let shown = run(work
        .command("python3")
        .arg(script)
        .arg(offld())
        .env("TERM", "xterm"))?;
    let (stderr, stdout) = shown
        .split_once(' ')
        .and_then(|_| shown.split_once("' {"))
        .ok_or("no report")?;
    expect_in(stderr, " of 0 B")?;
    ensure(stderr.ends_with("\\x1b[2K"), || {
        format!("the bar is not cleared: {stderr}")
    })?;
    let report: Value = serde_json::from_str(&format!("{{{stdout}"))
        .map_err(|error| format!("{error}: {stdout}"))?;
    expect_equal(
        "images",
        "1",
        &report["files"][0]["images"]
            .as_array()
            .map_or(0, Vec::len)
            .to_string(),
    )?;
    let quiet =
        "rm pipe; mkfifo pipe; (sleep 1.5; cat k.o > pipe) & OFFLD inspect pipe 2>&1 >/dev/null"
            .replace("OFFLD", &offld().display().to_string());
    expect_equal("without a terminal", "", &shell(&work, &quiet)?)?;
    passed()
}
