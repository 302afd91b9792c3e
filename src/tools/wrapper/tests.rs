//! Every format of every plan, with images that pass through LLVM and with the same images inserted
//! later. The results must be equal. LLVM 22's tools, which are independent of offld, do the
//! comparison.

use super::*;
use object::{Object, ObjectSection, ObjectSymbol};
use offld_system::session::SessionOptions;
use offld_system::shell::Shell;
use std::error::Error;
use std::fs;
use std::process::Command;
use std::sync::Arc;
use tempfile::TempDir;

mod inputs;

type Outcome = Result<(), Box<dyn Error>>;

const X86: &str = "x86_64-pc-linux-gnu";
const HOSTS: [&str; 9] = [
    X86,
    "i686-pc-linux-gnu",
    "aarch64-unknown-linux-gnu",
    "powerpc64le-unknown-linux-gnu",
    "riscv64-unknown-linux-gnu",
    "s390x-ibm-linux-gnu",
    "loongarch64-unknown-linux-gnu",
    "x86_64-pc-windows-msvc",
    "i686-pc-windows-msvc",
];

/// A directory with inputs and outputs of the wrapper.
struct Bench {
    dir: TempDir,
    session: Session,
}

impl Bench {
    fn new() -> Self {
        let shell = Arc::new(Shell::from_write("wrapper", Box::new(std::io::sink())));
        Bench {
            dir: tempfile::tempdir().unwrap(),
            session: Session::new(shell, SessionOptions::default()),
        }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Wraps `images` into the output `name`. Images above `limit` do not pass through LLVM.
    fn wrap(
        &self,
        name: &str,
        limit: u64,
        images: &[Vec<u8>],
        change: impl FnOnce(&mut Request),
    ) -> Result<Vec<u8>> {
        let mut inputs = Vec::new();
        for (index, image) in images.iter().enumerate() {
            let path = self.at(&format!("image.{index}"));
            fs::write(&path, image)?;
            inputs.push(Input {
                path,
                offload_arch: None,
            });
        }
        let mut request = Request {
            host_triple: X86.to_owned(),
            kind: OffloadKind::OpenMp,
            generation: Generation::Llvm21,
            inputs,
            emit: Emit::of(Path::new(name)),
            output: self.at(name),
            notes: false,
            relocatable: false,
            inline_limit: limit,
        };
        change(&mut request);
        wrap(&request, &Llvm::new(&self.session), &self.session)?;
        Ok(fs::read(self.at(name))?)
    }

    /// The output of an LLVM tool for a file in the directory.
    fn llvm(&self, release: u32, tool: &str, args: &[&str]) -> Option<Vec<u8>> {
        let tool = PathBuf::from(format!("/usr/lib/llvm-{release}/bin/{tool}"));
        if !tool.exists() {
            return None;
        }
        let output = Command::new(&tool)
            .args(args)
            .current_dir(self.dir.path())
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{} {args:?}: {}",
            tool.display(),
            String::from_utf8_lossy(&output.stderr)
        );
        Some(output.stdout)
    }
}

/// Images with lengths and contents that might be encoded wrongly.
fn images() -> Vec<Vec<u8>> {
    let all: Vec<u8> = (0..=255).collect();
    vec![
        b"7".to_vec(),
        b"\0\0".to_vec(),
        Vec::new(),
        b"a\"\0\\\0".to_vec(),
        (0..127).map(|index| index * 2 + 1).collect(),
        all.repeat(16),
        b"7".to_vec(),
        vec![0; 4096],
    ]
}

fn without_name(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    text.lines()
        .filter(|line| !line.starts_with("; ModuleID"))
        .collect::<Vec<_>>()
        .join("\n")
}

fn kinds() -> [(OffloadKind, Generation, Vec<Vec<u8>>); 5] {
    let binary = |image: &[u8]| {
        let strings = [
            ("triple", "spirv64-unknown-unknown"),
            ("symbols", "kernel_a\nkernel_b\n"),
        ];
        offload_binary::write(
            offload_formats::model::ImageKind::Spirv,
            8,
            0,
            &strings,
            image,
        )
    };
    let sycl = [binary(b"ONE"), binary(b"")].concat();
    [
        (OffloadKind::OpenMp, Generation::Llvm21, images()),
        (OffloadKind::OpenMp, Generation::Llvm14, images()),
        (
            OffloadKind::Cuda,
            Generation::Llvm21,
            vec![images().concat()],
        ),
        (OffloadKind::Hip, Generation::Llvm21, vec![b"HIP".to_vec()]),
        (
            OffloadKind::Sycl,
            Generation::Llvm21,
            vec![sycl, binary(&images().concat())],
        ),
    ]
}

#[test]
fn images_put_in_later_are_in_bitcode_what_llvm_writes() -> Outcome {
    let bench = Bench::new();
    for (kind, generation, images) in kinds() {
        let change =
            |request: &mut Request| (request.kind, request.generation) = (kind, generation);
        bench.wrap("small.bc", u64::MAX, &images, change)?;
        bench.wrap("large.bc", 0, &images, change)?;
        for release in [15, 16, 19, 22] {
            let Some(small) = bench.llvm(release, "llvm-dis", &["small.bc", "-o", "-"]) else {
                continue;
            };
            let large = bench
                .llvm(release, "llvm-dis", &["large.bc", "-o", "-"])
                .unwrap();
            assert_eq!(
                without_name(&large),
                without_name(&small),
                "{kind:?} {generation:?}, LLVM {release}"
            );
        }
        bench.llvm(
            22,
            "opt",
            &["-passes=verify", "large.bc", "-o", "/dev/null"],
        );
        if bench.llvm(22, "llvm-bcanalyzer", &["large.bc"]).is_some() {
            bench.llvm(22, "clang", &["-c", "large.bc", "-o", "large.o"]);
        }
    }
    Ok(())
}

#[test]
fn images_put_in_later_are_in_text_what_llvm_prints() -> Outcome {
    let bench = Bench::new();
    for (kind, generation, images) in kinds() {
        let change =
            |request: &mut Request| (request.kind, request.generation) = (kind, generation);
        let small = bench.wrap("small.ll", u64::MAX, &images, change)?;
        bench.wrap("large.ll", 0, &images, change)?;
        // LLVM prints strings of zeros in another form, so the text is assembled and printed again.
        if bench
            .llvm(22, "llvm-as", &["large.ll", "-o", "large.bc"])
            .is_some()
        {
            let large = bench
                .llvm(22, "llvm-dis", &["large.bc", "-o", "-"])
                .unwrap();
            assert_eq!(
                without_name(&large),
                without_name(&small),
                "{kind:?} {generation:?}"
            );
        }
    }
    Ok(())
}

/// A section's name, contents, flags and symbols.
type Section = (String, Vec<u8>, object::SectionFlags, Vec<String>);

fn sections(object: &[u8]) -> Result<Vec<Section>> {
    let file = object::File::parse(object)?;
    let mut all = Vec::new();
    for section in file.sections() {
        let mut symbols: Vec<String> = file
            .symbols()
            .filter(|symbol| {
                symbol.section_index() == Some(section.index())
                    && symbol.kind() != object::SymbolKind::Section
            })
            .flat_map(|symbol| {
                symbol
                    .name()
                    .map(|name| format!("{name}={}", symbol.address()))
            })
            .collect();
        symbols.sort();
        all.push((
            section.name()?.to_owned(),
            section.data()?.to_vec(),
            section.flags(),
            symbols,
        ));
    }
    Ok(all)
}

#[test]
fn images_put_in_later_are_in_objects_what_llvm_writes() -> Outcome {
    let bench = Bench::new();
    for host in HOSTS {
        for (kind, generation, images) in kinds() {
            let change = |request: &mut Request| {
                (request.kind, request.generation) = (kind, generation);
                request.host_triple = host.to_owned();
            };
            let small = sections(&bench.wrap("small.o", u64::MAX, &images, change)?)?;
            let large = bench
                .wrap("large.o", 0, &images, change)
                .map_err(|error| format!("{host} {kind:?}: {error:?}"))?;
            let large = sections(&large)?;
            let name = match (kind, generation) {
                (OffloadKind::OpenMp, Generation::Llvm14) if host.contains("windows") => {
                    ".rdata$offload"
                }
                (OffloadKind::OpenMp, Generation::Llvm14) => ".rodata.offload",
                (OffloadKind::OpenMp, _) => ".llvm.offloading",
                (OffloadKind::Cuda, _) => ".nv_fatbin",
                (OffloadKind::Hip, _) => ".hip_fatbin",
                (OffloadKind::Sycl, _) => ".sycl_offloading",
            };
            let found = large
                .iter()
                .find(|section| section.0 == name)
                .ok_or_else(|| format!("{host}: no {name}"))?;
            // The PowerPC backend merges small variables, and an empty one takes a byte on Windows.
            let loose = host.starts_with("powerpc") || host.contains("windows");
            let same = small.iter().find(|section| section.0 == name);
            match kind {
                _ if generation == Generation::Llvm21 && !loose => {
                    assert_eq!(Some(found), same, "{host} {kind:?}")
                }
                OffloadKind::OpenMp => {
                    // LLVM aligns arrays without a section by their lengths.
                    let own = |symbol: &&String| symbol.contains(".omp_offloading.device_image");
                    let mut starts: Vec<usize> = found
                        .3
                        .iter()
                        .filter(own)
                        .filter_map(|symbol| symbol.split_once('=')?.1.parse().ok())
                        .collect();
                    starts.sort_unstable();
                    assert_eq!(starts.len(), images.len(), "{host}");
                    for (start, image) in starts.into_iter().zip(&images) {
                        assert!(found.1[start..].starts_with(image), "{host}: {start}");
                    }
                }
                OffloadKind::Sycl => assert!(found.1.starts_with(b"ONE\0\0\0\0\0"), "{host}"),
                _ => assert_eq!(
                    Some(&found.1),
                    same.map(|section| &section.1),
                    "{host} {kind:?}"
                ),
            }
            assert!(
                !large.iter().any(|section| section.0.starts_with(".bss.")),
                "{host}"
            );
        }
    }
    Ok(())
}

#[test]
fn assembly_gives_the_same_object() -> Outcome {
    let bench = Bench::new();
    if bench.llvm(22, "clang", &["--version"]).is_none() {
        eprintln!("skipped: no clang 22");
        return Ok(());
    }
    for host in HOSTS {
        for (kind, generation, images) in kinds() {
            let change = |request: &mut Request| {
                (request.kind, request.generation) = (kind, generation);
                request.host_triple = host.to_owned();
            };
            let direct = sections(&bench.wrap("direct.o", u64::MAX, &images, change)?)?;
            for limit in [0, u64::MAX] {
                bench.wrap("written.s", limit, &images, change)?;
                bench.llvm(
                    22,
                    "clang",
                    &["-target", host, "-c", "written.s", "-o", "written.o"],
                );
                let written = sections(&fs::read(bench.at("written.o"))?)?;
                if host.starts_with("powerpc") {
                    // The PowerPC backend sorts small constants by size.
                    continue;
                }
                let of = |all: &[Section], name: &str| {
                    all.iter()
                        .find(|section| section.0 == name)
                        .map(|section| section.1.clone())
                };
                for name in [
                    ".llvm.offloading",
                    ".nv_fatbin",
                    ".hip_fatbin",
                    ".sycl_offloading",
                ] {
                    assert_eq!(
                        of(&written, name),
                        of(&direct, name),
                        "{host} {kind:?} {generation:?} {limit}: {name}"
                    );
                }
                if generation == Generation::Llvm14 {
                    // If no section is specified, LLVM aligns arrays by their lengths.
                    let constants = of(&written, ".rodata")
                        .or(of(&written, ".rdata"))
                        .ok_or("no constants")?;
                    let found = |image: &Vec<u8>| {
                        image.is_empty() || constants.windows(image.len()).any(|part| part == image)
                    };
                    assert!(images.iter().all(found), "{host} {limit}");
                }
            }
        }
    }
    Ok(())
}
