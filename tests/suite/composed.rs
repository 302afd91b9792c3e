//! Containers that were composed anew, read by the tools of those whose containers they are.

use std::collections::BTreeSet;
use std::path::PathBuf;

use libtest_mimic::{Failed, Trial};
use offld::formats::compose::{Item, join};
use offld::formats::elf::strip::strip_debug;
use offld::formats::fatbin::{Code, Entry, Method, NewEntry, compose, lz4, read_all};

use super::support::{Outcome, Work, cuda_tools, ensure, expect_equal, missing, passed, run, test};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test("releases::composed::cuobjdump_reads_fatbinaries", fatbinaries),
        test("releases::composed::cubins_without_debug_information", cubins),
    ]
}

/// Targets with the bytes of their code.
type Seen = BTreeSet<(String, Vec<u8>)>;

type NewItem<'a> = Item<NewEntry<'a>, Code>;

const PTX: &str = "
.version 8.8
.target TARGET
.address_size 64
.visible .entry KERNEL(.param .u64 at) {
  .reg .b32 %r<3>; .reg .b64 %d<4>;
  ld.param.u64 %d1, [at];
  cvta.to.global.u64 %d2, %d1;
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %d3, %r1, 4;
  add.u64 %d2, %d2, %d3;
  st.global.u32 [%d2], %r1;
  ret;
}
";

/// NVIDIA's tools, and a folder to work in.
struct Kit {
    tools: PathBuf,
    work: Work,
}

impl Kit {
    fn tool(&self, name: &str, words: &[&str]) -> Result<String, Failed> {
        run(self.work.command(self.tools.join("bin").join(name)).args(words))
    }

    /// PTX and cubins for three processors.
    fn compile(&self) -> Result<(), Failed> {
        for sm in ["80", "90a", "100f"] {
            let target = format!("sm_{sm}");
            self.work.file(&format!("{sm}.ptx"), PTX.replace("TARGET", &target).replace("KERNEL", &format!("kernel_{sm}")));
            self.tool("ptxas", &[&format!("-arch={target}"), &format!("{sm}.ptx"), "-o", &format!("{sm}.cubin")])?;
        }
        Ok(())
    }

    /// A fatbinary of four entries, as NVIDIA's tool compresses it in one of its modes.
    fn fatbinary(&self, mode: &str) -> Result<Vec<u8>, Failed> {
        let image = |kind: &str, sm: &str| {
            format!("--image3=kind={kind},sm={sm},file={sm}.{}", if kind == "elf" { "cubin" } else { "ptx" })
        };
        let images = [image("elf", "80"), image("elf", "90a"), image("elf", "100f"), image("ptx", "80")];
        let mode = format!("--compress-mode={mode}");
        let mut words = vec!["-64", "--compress-all", mode.as_str(), "--ident", "some.cu", "--create=old.fatbin"];
        words.extend(images.iter().map(String::as_str));
        self.tool("fatbinary", &words)?;
        Ok(std::fs::read(self.work.path().join("old.fatbin"))?)
    }

    /// What `cuobjdump` lists and extracts of a fatbinary: the targets with the bytes.
    fn seen(&self, fatbinary: &[u8]) -> Result<Seen, Failed> {
        let work = Work::new();
        work.file("f.fatbin", fatbinary);
        let tool = |words: &[&str]| run(work.command(self.tools.join("bin/cuobjdump")).args(words));
        let listed = tool(&["-lelf", "f.fatbin"])? + &tool(&["-lptx", "f.fatbin"])?;
        tool(&["-xelf", "all", "f.fatbin"])?;
        tool(&["-xptx", "all", "f.fatbin"])?;
        let mut all = BTreeSet::new();
        for file in std::fs::read_dir(work.path())? {
            let path = file?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            // The names are `1.sm_90a.cubin`, behind the entry's own name or the file's.
            let mut ends = name.rsplitn(3, '.');
            if let (Some(kind @ ("cubin" | "ptx")), Some(target)) = (ends.next(), ends.next()) {
                ensure(listed.contains(&name), || format!("{name} is not listed:\n{listed}"))?;
                all.insert((format!("{target}.{kind}"), std::fs::read(&path)?));
            }
        }
        Ok(all)
    }

    /// That of a fatbinary the entries of these targets are seen, each with the bytes that it has in `all`.
    fn expect_seen(&self, what: &str, fatbinary: &[u8], targets: &[&str], all: &Seen) -> Result<(), Failed> {
        let seen = self.seen(fatbinary)?;
        let wanted: Seen = all.iter().filter(|(target, _)| targets.contains(&target.as_str())).cloned().collect();
        let names = |set: &Seen| set.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(" ");
        expect_equal(what, &names(&wanted), &names(&seen))?;
        ensure(wanted == seen, || format!("{what}: other bytes were extracted"))
    }
}

/// The code of an entry, decompressed.
fn plain(entry: &Entry<'_>) -> Result<Vec<u8>, Failed> {
    Ok(match entry.method {
        Some(Method::Zstd) => zstd::bulk::decompress(entry.stored, entry.plain_size as usize)?,
        Some(Method::Lz4) => lz4_flex::block::decompress(entry.stored, entry.plain_size as usize)?,
        _ => entry.stored.to_vec(),
    })
}

fn fatbinaries() -> Outcome {
    let Some(tools) = cuda_tools(22) else { return missing("NVIDIA's tools (make setup-cuda)") };
    let kit = Kit { tools, work: Work::new() };
    kit.compile()?;
    // The tool does not tell that the third one is for a family.
    let targets = ["sm_80.cubin", "sm_90a.cubin", "sm_100.cubin", "sm_80.ptx"];
    let reference = kit.fatbinary("none")?;
    let all = kit.seen(&reference)?;
    for (target, file) in targets.iter().zip(["80.cubin", "90a.cubin", "100f.cubin"]) {
        let code = std::fs::read(kit.work.path().join(file))?;
        ensure(all.contains(&((*target).to_owned(), code)), || format!("{target} is not extracted as it was"))?;
    }
    for mode in ["none", "size", "speed", "balance"] {
        let old = kit.fatbinary(mode)?;
        kit.expect_seen(mode, &old, &targets, &all)?;
        let parsed = read_all(&old)?;
        let entries = &parsed[0].entries;

        // Some go.
        for places in [&[0, 3][..], &[1], &[2, 0], &[3]] {
            let items: Vec<NewItem> = places.iter().map(|place| Item::Old(*place)).collect();
            let new = join(&old, &compose(&old, &items)?, &[])?;
            let wanted: Vec<_> = places.iter().map(|place| targets[*place]).collect();
            kit.expect_seen(&format!("{mode}, {places:?} kept"), &new, &wanted, &all)?;
        }

        // All are compressed in every other way.
        let plains: Vec<Vec<u8>> = entries.iter().map(plain).collect::<Result<_, _>>()?;
        for (method, level) in
            [(None, 0), (Some(Method::Lz4), 0), (Some(Method::Zstd), 1), (Some(Method::Zstd), 19), (Some(Method::Zstd), 22)]
        {
            let mut contents = Vec::new();
            let mut items: Vec<NewItem> = Vec::new();
            for (entry, bytes) in plains.iter().enumerate() {
                let stored = match method {
                    Some(Method::Lz4) => lz4(bytes),
                    Some(_) => zstd::bulk::compress(bytes, level)?,
                    None => bytes.clone(),
                };
                let code = Code { method, stored: stored.len() as u64, plain_size: bytes.len() as u64 };
                items.push(Item::Changed { entry, size: code });
                contents.push(stored);
            }
            let contents: Vec<&[u8]> = contents.iter().map(Vec::as_slice).collect();
            let new = join(&old, &compose(&old, &items)?, &contents)?;
            kit.expect_seen(&format!("{mode}, now {method:?} {level}"), &new, &targets, &all)?;
            if method.is_none() {
                ensure(new == reference, || format!("{mode}, decompressed: not what NVIDIA's tool writes of plain code"))?;
            }
        }

        // One comes from another fatbinary.
        let without = join(&old, &compose(&old, &[Item::Old(0), Item::Old(2), Item::Old(3)])?, &[])?;
        let one = &entries[1];
        let code = Code { method: one.method, stored: one.stored.len() as u64, plain_size: one.plain_size };
        let items = [Item::Old(0), Item::New(NewEntry { header: one.header, code }), Item::Old(1), Item::Old(2)];
        let with = join(&without, &compose(&without, &items)?, &[one.stored])?;
        kit.expect_seen(&format!("{mode}, one added"), &with, &targets, &all)?;
    }
    passed()
}

/// Code, kernels and whatever else NVIDIA's tools tell of a cubin is what it was before its debug information was taken out.
fn cubins() -> Outcome {
    let Some(tools) = cuda_tools(22) else { return missing("NVIDIA's tools (make setup-cuda)") };
    let kit = Kit { tools, work: Work::new() };
    for sm in ["80", "100f"] {
        let target = format!("sm_{sm}");
        let ptx = PTX.replace("TARGET", &target).replace("KERNEL", "kernel");
        let [head, body] = ptx.split_once(".visible").map(<[&str; 2]>::from).ok_or("a kernel in the PTX")?;
        // Two kernels, and lines for each of them.
        let second = body.replace("kernel", "other").replace("st.global", ".loc 1 8 3\n  st.global");
        let first = body.replace("cvta", ".loc 1 4 3\n  cvta");
        kit.work.file("k.ptx", format!("{head}.visible{first}.visible{second}.file 1 \"k.cu\"\n"));
        for (how, more) in [("-lineinfo", ""), ("-g", ""), ("-g", "-c"), ("-lineinfo", "-c")] {
            let arch = format!("-arch={target}");
            let mut words = vec![how, arch.as_str(), "k.ptx", "-o", "k.cubin"];
            words.extend(Some(more).filter(|more| !more.is_empty()));
            // It warns that the PTX has no DWARF of its own.
            let built = kit.work.command(kit.tools.join("bin/ptxas")).args(&words).output()?;
            ensure(built.status.success(), || format!("ptxas {words:?}: {}", String::from_utf8_lossy(&built.stderr)))?;
            let old = std::fs::read(kit.work.path().join("k.cubin"))?;
            let new = join(&old, &strip_debug(&old)?, &[])?;
            ensure(new.len() < old.len(), || format!("{target} {how}: nothing was taken out"))?;
            let told = |file: &[u8]| -> Result<String, Failed> {
                kit.work.file("k.cubin", file);
                let mut all = kit.tool("nvdisasm", &["-c", "-hex", "k.cubin"])?;
                for what in ["-sass", "-res-usage", "-symbols"] {
                    all += &kit.tool("cuobjdump", &[what, "k.cubin"])?;
                }
                if more == "-c" {
                    kit.tool("nvlink", &[&arch, "k.cubin", "-o", "linked.cubin"])?;
                    all += &kit.tool("cuobjdump", &["-sass", "-res-usage", "linked.cubin"])?;
                }
                Ok(all)
            };
            expect_equal(&format!("{target} {how} {more}"), &told(&old)?, &told(&new)?)?;
            let dumped = kit.tool("cuobjdump", &["-elf", "k.cubin"])?;
            ensure(dumped.contains(".nv.info.kernel"), || format!("no .nv.info:\n{dumped}"))?;
        }
    }
    passed()
}
