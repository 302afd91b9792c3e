//! Intact files of every format, made by LLVM 22's tools once for all rows, and functions that
//! damage them.

use std::sync::OnceLock;

use libtest_mimic::Failed;

use super::TARGET;
use crate::kit::Image;
use crate::support::{Work, llvm};

/// Intact files.
pub(super) struct Samples {
    /// A binary bundle with three entries: host, [`TARGET`], and another target. It has no
    /// alignment.
    pub bundle: Vec<u8>,
    /// The same as a text bundle with `//` comments.
    pub text: Vec<u8>,
    /// The bundle, compressed in version 3.
    pub ccob: Vec<u8>,
    /// The bundle, compressed in version 2.
    pub ccob2: Vec<u8>,
    /// An OffloadBinary with one image, whose bytes are at the end.
    pub packed: Vec<u8>,
    /// A host object with that OffloadBinary in `.llvm.offloading`.
    pub fat: Vec<u8>,
    /// The same for Windows.
    pub coff: Vec<u8>,
    /// A host object with bundles in its sections.
    pub bundled: Vec<u8>,
    /// An archive of the bundle, the compressed bundle and the object with bundles.
    pub archive: Vec<u8>,
    /// An ELF file with the compressed bundle twice in `.hip_fatbin`.
    pub hip: Vec<u8>,
}

/// The intact files, created once.
pub(super) fn samples() -> Result<&'static Samples, Failed> {
    static SAMPLES: OnceLock<Result<Samples, String>> = OnceLock::new();
    let made = SAMPLES
        .get_or_init(|| make().map_err(|failed| failed.message().unwrap_or("failed").to_owned()));
    made.as_ref().map_err(Failed::from)
}

fn make() -> Result<Samples, Failed> {
    let work = Work::new();
    let read = |name: &str| std::fs::read(work.path().join(name));
    work.file("host", "HOST");
    work.file("a", "DEVICE-A");
    work.file("b", "DEVICE-BB");
    work.file("c.c", "int f(void) { return 1; }\n");
    work.run(llvm("clang"), ["-c", "c.c", "-o", "c.o"])?;
    let targets = format!(
        "-targets=host-x86_64-unknown-linux-gnu-,{TARGET},hipv4-amdgcn-amd-amdhsa--gfx9-4-generic"
    );
    let bundle = |kind: &str, host: &str, output: &str, more: &[&str]| {
        let files = [
            "-input=a".to_owned(),
            "-input=b".to_owned(),
            format!("-input={host}"),
            format!("-output={output}"),
        ];
        let [a, b, host, output] = files;
        let mut command = work.command(llvm("clang-offload-bundler"));
        command
            .args([format!("-type={kind}"), targets.clone(), host, a, b, output])
            .args(more);
        command.env(
            "COMPRESSED_BUNDLE_FORMAT_VERSION",
            if more.contains(&"-verbose") { "2" } else { "3" },
        );
        crate::support::run(&mut command)
    };
    bundle("bc", "host", "plain.bc", &[])?;
    bundle("ii", "host", "plain.ii", &[])?;
    bundle("bc", "host", "v3.bc", &["-compress"])?;
    bundle("bc", "host", "v2.bc", &["-compress", "-verbose"])?;
    bundle("o", "c.o", "bundled.o", &[])?;
    work.run(
        llvm("llvm-ar"),
        ["rc", "bundles.a", "plain.bc", "v3.bc", "bundled.o"],
    )?;
    let image = [Image::amd("gfx906", "DEVICE-A")];
    work.fat("fat.o", &image)?;
    work.fat_for("x86_64-pc-windows-msvc", "fat.obj", &image, "int f;\n")?;
    work.pack("one.bin", &image)?;
    work.file(
        "twice",
        [read("v3.bc")?, vec![0; 100], read("v3.bc")?].concat(),
    );
    let section = [
        "--add-section=.hip_fatbin=twice",
        "--set-section-flags=.hip_fatbin=alloc,readonly",
        "c.o",
        "hip.o",
    ];
    work.run(llvm("llvm-objcopy"), section)?;
    Ok(Samples {
        bundle: read("plain.bc")?,
        text: read("plain.ii")?,
        ccob: read("v3.bc")?,
        ccob2: read("v2.bc")?,
        packed: read("one.bin")?,
        fat: read("fat.o")?,
        coff: read("fat.obj")?,
        bundled: read("bundled.o")?,
        archive: read("bundles.a")?,
        hip: read("hip.o")?,
    })
}

/// A copy of `good` with `bytes` at the offset `at`.
pub(super) fn put(good: &[u8], at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut bad = good.to_vec();
    bad.splice(at..at + bytes.len(), bytes.iter().copied());
    bad
}

/// A copy of `good` with the 8-byte little-endian number `value` at the offset `at`.
pub(super) fn put64(good: &[u8], at: usize, value: u64) -> Vec<u8> {
    put(good, at, &value.to_le_bytes())
}

/// The offset of `part` in `whole`.
pub(super) fn find(whole: &[u8], part: &[u8]) -> Result<usize, Failed> {
    let at = whole.windows(part.len()).position(|window| window == part);
    at.ok_or_else(|| format!("{:?} is not in the sample", String::from_utf8_lossy(part)).into())
}

/// The offset of the header of section `name` in a 64-bit little-endian ELF file.
pub(super) fn section(elf: &[u8], name: &str) -> Result<usize, Failed> {
    let number = |at: usize, len: usize| {
        elf[at..at + len]
            .iter()
            .rev()
            .fold(0, |value, byte| value << 8 | usize::from(*byte))
    };
    let (start, count, names) = (number(40, 8), number(60, 2), number(62, 2));
    let names = number(start + 64 * names + 24, 8);
    let is_it =
        |at: &usize| elf[names + number(*at, 4)..].starts_with(&[name.as_bytes(), b"\0"].concat());
    (0..count)
        .map(|index| start + 64 * index)
        .find(is_it)
        .ok_or_else(|| format!("no section {name}").into())
}
