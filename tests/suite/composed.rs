//! Containers that offld composed, read by the tools that own their formats.

use std::collections::BTreeSet;
use std::path::PathBuf;

use libtest_mimic::{Failed, Trial};
use offload_formats::compose::{Item, join};
use offload_formats::elf::strip::strip_debug;
use offload_formats::fatbin::{Code, Entry, Method, NewEntry, compose, lz4, read_all};

use super::support::{Outcome, Work, cuda_tools, ensure, expect_equal, missing, passed, run, test};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test(
            "releases::composed::cuobjdump_reads_fatbinaries",
            fatbinaries,
        ),
        test(
            "releases::composed::cubins_without_debug_information",
            cubins,
        ),
    ]
}

/// The targets and bytes of device code.
type Extracted = BTreeSet<(String, Vec<u8>)>;

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

/// NVIDIA's tools and a working directory.
struct Kit {
    tools: PathBuf,
    work: Work,
}

impl Kit {
    fn tool(&self, name: &str, args: &[&str]) -> Result<String, Failed> {
        run(self
            .work
            .command(self.tools.join("bin").join(name))
            .args(args))
    }

    /// Compiles PTX and cubins for three architectures.
    fn compile(&self) -> Result<(), Failed> {
        for sm in ["80", "90a", "100f"] {
            let target = format!("sm_{sm}");
            self.work.file(
                &format!("{sm}.ptx"),
                PTX.replace("TARGET", &target)
                    .replace("KERNEL", &format!("kernel_{sm}")),
            );
            self.tool(
                "ptxas",
                &[
                    &format!("-arch={target}"),
                    &format!("{sm}.ptx"),
                    "-o",
                    &format!("{sm}.cubin"),
                ],
            )?;
        }
        Ok(())
    }

    /// A fatbinary with four entries, compressed by NVIDIA's tool in `mode`.
    fn fatbinary(&self, mode: &str) -> Result<Vec<u8>, Failed> {
        let image = |kind: &str, sm: &str| {
            format!(
                "--image3=kind={kind},sm={sm},file={sm}.{}",
                if kind == "elf" { "cubin" } else { "ptx" }
            )
        };
        let images = [
            image("elf", "80"),
            image("elf", "90a"),
            image("elf", "100f"),
            image("ptx", "80"),
        ];
        let mode = format!("--compress-mode={mode}");
        let mut args = vec![
            "-64",
            "--compress-all",
            mode.as_str(),
            "--ident",
            "some.cu",
            "--create=old.fatbin",
        ];
        args.extend(images.iter().map(String::as_str));
        self.tool("fatbinary", &args)?;
        Ok(std::fs::read(self.work.path().join("old.fatbin"))?)
    }

    /// The targets and bytes that `cuobjdump` lists and extracts from a fatbinary.
    fn extracted(&self, fatbinary: &[u8]) -> Result<Extracted, Failed> {
        let work = Work::new();
        work.file("f.fatbin", fatbinary);
        let tool = |args: &[&str]| run(work.command(self.tools.join("bin/cuobjdump")).args(args));
        let listed = tool(&["-lelf", "f.fatbin"])? + &tool(&["-lptx", "f.fatbin"])?;
        tool(&["-xelf", "all", "f.fatbin"])?;
        tool(&["-xptx", "all", "f.fatbin"])?;
        let mut all = BTreeSet::new();
        for file in std::fs::read_dir(work.path())? {
            let path = file?.path();
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            // File names end with a target and a type: `1.sm_90a.cubin`. The name of the entry or
            // the file comes before.
            let mut ends = name.rsplitn(3, '.');
            if let (Some(kind @ ("cubin" | "ptx")), Some(target)) = (ends.next(), ends.next()) {
                ensure(listed.contains(&name), || {
                    format!("{name} is not listed:\n{listed}")
                })?;
                all.insert((format!("{target}.{kind}"), std::fs::read(&path)?));
            }
        }
        Ok(all)
    }

    /// Fails unless `cuobjdump` sees exactly the entries for `targets`, with their bytes from
    /// `all`.
    fn expect_extracted(
        &self,
        what: &str,
        fatbinary: &[u8],
        targets: &[&str],
        all: &Extracted,
    ) -> Result<(), Failed> {
        let extracted = self.extracted(fatbinary)?;
        let wanted: Extracted = all
            .iter()
            .filter(|(target, _)| targets.contains(&target.as_str()))
            .cloned()
            .collect();
        let names = |set: &Extracted| {
            set.iter()
                .map(|(name, _)| name.as_str())
                .collect::<Vec<_>>()
                .join(" ")
        };
        expect_equal(what, &names(&wanted), &names(&extracted))?;
        ensure(wanted == extracted, || {
            format!("{what}: other bytes were extracted")
        })
    }
}

/// The decompressed code of an entry.
fn decompressed(entry: &Entry<'_>) -> Result<Vec<u8>, Failed> {
    Ok(match entry.method {
        Some(Method::Zstd) => zstd::bulk::decompress(entry.stored, entry.plain_size as usize)?,
        Some(Method::Lz4) => lz4_flex::block::decompress(entry.stored, entry.plain_size as usize)?,
        _ => entry.stored.to_vec(),
    })
}

fn fatbinaries() -> Outcome {
    let Some(tools) = cuda_tools(22) else {
        return missing("NVIDIA's tools (make setup-cuda)");
    };
    let kit = Kit {
        tools,
        work: Work::new(),
    };
    kit.compile()?;
    // cuobjdump does not show that the third target is a family.
    let targets = ["sm_80.cubin", "sm_90a.cubin", "sm_100.cubin", "sm_80.ptx"];
    let reference = kit.fatbinary("none")?;
    let all = kit.extracted(&reference)?;
    for (target, file) in targets.iter().zip(["80.cubin", "90a.cubin", "100f.cubin"]) {
        let code = std::fs::read(kit.work.path().join(file))?;
        ensure(all.contains(&((*target).to_owned(), code)), || {
            format!("{target} is not extracted as it was")
        })?;
    }
    for mode in ["none", "size", "speed", "balance"] {
        let old = kit.fatbinary(mode)?;
        kit.expect_extracted(mode, &old, &targets, &all)?;
        let parsed = read_all(&old)?;
        let entries = &parsed[0].entries;

        // Remove entries, and change their order.
        for places in [&[0, 3][..], &[1], &[2, 0], &[3]] {
            let items: Vec<NewItem> = places.iter().map(|place| Item::Old(*place)).collect();
            let new = join(&old, &compose(&old, &items)?, &[])?;
            let wanted: Vec<_> = places.iter().map(|place| targets[*place]).collect();
            kit.expect_extracted(&format!("{mode}, {places:?} kept"), &new, &wanted, &all)?;
        }

        // Recompress all entries with each other method.
        let plains: Vec<Vec<u8>> = entries.iter().map(decompressed).collect::<Result<_, _>>()?;
        for (method, level) in [
            (None, 0),
            (Some(Method::Lz4), 0),
            (Some(Method::Zstd), 1),
            (Some(Method::Zstd), 19),
            (Some(Method::Zstd), 22),
        ] {
            let mut contents = Vec::new();
            let mut items: Vec<NewItem> = Vec::new();
            for (entry, bytes) in plains.iter().enumerate() {
                let stored = match method {
                    Some(Method::Lz4) => lz4(bytes),
                    Some(_) => zstd::bulk::compress(bytes, level)?,
                    None => bytes.clone(),
                };
                let code = Code {
                    method,
                    stored: stored.len() as u64,
                    plain_size: bytes.len() as u64,
                };
                items.push(Item::Changed { entry, size: code });
                contents.push(stored);
            }
            let contents: Vec<&[u8]> = contents.iter().map(Vec::as_slice).collect();
            let new = join(&old, &compose(&old, &items)?, &contents)?;
            kit.expect_extracted(
                &format!("{mode}, now {method:?} {level}"),
                &new,
                &targets,
                &all,
            )?;
            if method.is_none() {
                ensure(new == reference, || {
                    format!("{mode}, decompressed: not what NVIDIA's tool writes of plain code")
                })?;
            }
        }

        // Insert an entry of another fatbinary.
        let without = join(
            &old,
            &compose(&old, &[Item::Old(0), Item::Old(2), Item::Old(3)])?,
            &[],
        )?;
        let one = &entries[1];
        let code = Code {
            method: one.method,
            stored: one.stored.len() as u64,
            plain_size: one.plain_size,
        };
        let items = [
            Item::Old(0),
            Item::New(NewEntry {
                header: one.header,
                code,
            }),
            Item::Old(1),
            Item::Old(2),
        ];
        let with = join(&without, &compose(&without, &items)?, &[one.stored])?;
        kit.expect_extracted(&format!("{mode}, one added"), &with, &targets, &all)?;
    }
    passed()
}

/// After its debug information is removed, NVIDIA's tools still report the same code and kernels in
/// a cubin.
fn cubins() -> Outcome {
    let Some(tools) = cuda_tools(22) else {
        return missing("NVIDIA's tools (make setup-cuda)");
    };
    let kit = Kit {
        tools,
        work: Work::new(),
    };
    for sm in ["80", "100f"] {
        let target = format!("sm_{sm}");
        let ptx = PTX.replace("TARGET", &target).replace("KERNEL", "kernel");
        let [head, body] = ptx
            .split_once(".visible")
            .map(<[&str; 2]>::from)
            .ok_or("a kernel in the PTX")?;
        // Two kernels with line information.
        let second = body
            .replace("kernel", "other")
            .replace("st.global", ".loc 1 8 3\n  st.global");
        let first = body.replace("cvta", ".loc 1 4 3\n  cvta");
        kit.work.file(
            "k.ptx",
            format!("{head}.visible{first}.visible{second}.file 1 \"k.cu\"\n"),
        );
        for (how, more) in [
            ("-lineinfo", ""),
            ("-g", ""),
            ("-g", "-c"),
            ("-lineinfo", "-c"),
        ] {
            let arch = format!("-arch={target}");
            let mut args = vec![how, arch.as_str(), "k.ptx", "-o", "k.cubin"];
            args.extend(Some(more).filter(|more| !more.is_empty()));
            // ptxas warns that the PTX has no DWARF.
            let built = kit
                .work
                .command(kit.tools.join("bin/ptxas"))
                .args(&args)
                .output()?;
            ensure(built.status.success(), || {
                format!("ptxas {args:?}: {}", String::from_utf8_lossy(&built.stderr))
            })?;
            let old = std::fs::read(kit.work.path().join("k.cubin"))?;
            let new = join(&old, &strip_debug(&old)?, &[])?;
            ensure(new.len() < old.len(), || {
                format!("{target} {how}: nothing was taken out")
            })?;
            let listings = |file: &[u8]| -> Result<String, Failed> {
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
            expect_equal(
                &format!("{target} {how} {more}"),
                &listings(&old)?,
                &listings(&new)?,
            )?;
            let dumped = kit.tool("cuobjdump", &["-elf", "k.cubin"])?;
            ensure(dumped.contains(".nv.info.kernel"), || {
                format!("no .nv.info:\n{dumped}")
            })?;
        }
    }
    passed()
}
