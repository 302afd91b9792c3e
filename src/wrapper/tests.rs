//! Every form of every plan, with images that pass through LLVM and with the same images put in afterwards: what LLVM makes of the
//! two must be the same. LLVM 22's tools are asked, as they have no part in it.

use super::*;
use crate::session::SessionOptions;
use crate::shell::Shell;
use object::{Object, ObjectSection, ObjectSymbol};
use std::error::Error;
use std::fs;
use std::process::Command;
use std::sync::Arc;
use tempfile::TempDir;

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

/// A folder with inputs, and what is wrapped there.
struct Bench {
    dir: TempDir,
    session: Session,
}

impl Bench {
    fn new() -> Self {
        let shell = Arc::new(Shell::from_write("wrapper", Box::new(std::io::sink())));
        Bench { dir: tempfile::tempdir().unwrap(), session: Session::new(shell, SessionOptions::default()) }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// `images` wrapped into the output `name`; those above `limit` do not pass through LLVM.
    fn wrap(&self, name: &str, limit: u64, images: &[Vec<u8>], change: impl FnOnce(&mut Request)) -> Result<Vec<u8>> {
        let mut inputs = Vec::new();
        for (index, image) in images.iter().enumerate() {
            let path = self.at(&format!("image.{index}"));
            fs::write(&path, image)?;
            inputs.push(Input { path, offload_arch: None });
        }
        let mut request = Request {
            host_triple: X86.to_owned(),
            kind: OffloadKind::OpenMp,
            generation: Generation::Llvm21,
            inputs,
            emit: Emit::of(Path::new(name)),
            output: self.at(name),
            notes: false,
            inline_limit: limit,
        };
        change(&mut request);
        wrap(&request, &self.session)?;
        Ok(fs::read(self.at(name))?)
    }

    /// What an LLVM tool prints of a file here.
    fn llvm(&self, release: u32, tool: &str, args: &[&str]) -> Option<Vec<u8>> {
        let tool = PathBuf::from(format!("/usr/lib/llvm-{release}/bin/{tool}"));
        if !tool.exists() {
            return None;
        }
        let output = Command::new(&tool).args(args).current_dir(self.dir.path()).output().unwrap();
        assert!(output.status.success(), "{} {args:?}: {}", tool.display(), String::from_utf8_lossy(&output.stderr));
        Some(output.stdout)
    }
}

/// Images of every length and content that may come out otherwise than it went in.
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
    text.lines().filter(|line| !line.starts_with("; ModuleID")).collect::<Vec<_>>().join("\n")
}

fn kinds() -> [(OffloadKind, Generation, Vec<Vec<u8>>); 5] {
    let binary = |image: &[u8]| {
        let strings = [("triple", "spirv64-unknown-unknown"), ("symbols", "kernel_a\nkernel_b\n")];
        offload_binary::write(crate::model::ImageKind::Spirv, 8, 0, &strings, image)
    };
    let sycl = [binary(b"ONE"), binary(b"")].concat();
    [
        (OffloadKind::OpenMp, Generation::Llvm21, images()),
        (OffloadKind::OpenMp, Generation::Llvm14, images()),
        (OffloadKind::Cuda, Generation::Llvm21, vec![images().concat()]),
        (OffloadKind::Hip, Generation::Llvm21, vec![b"HIP".to_vec()]),
        (OffloadKind::Sycl, Generation::Llvm21, vec![sycl, binary(&images().concat())]),
    ]
}

#[test]
fn images_put_in_later_are_in_bitcode_what_llvm_writes() -> Outcome {
    let bench = Bench::new();
    for (kind, generation, images) in kinds() {
        let change = |request: &mut Request| (request.kind, request.generation) = (kind, generation);
        bench.wrap("small.bc", u64::MAX, &images, change)?;
        bench.wrap("large.bc", 0, &images, change)?;
        for release in [15, 16, 19, 22] {
            let Some(small) = bench.llvm(release, "llvm-dis", &["small.bc", "-o", "-"]) else { continue };
            let large = bench.llvm(release, "llvm-dis", &["large.bc", "-o", "-"]).unwrap();
            assert_eq!(without_name(&large), without_name(&small), "{kind:?} {generation:?}, LLVM {release}");
        }
        bench.llvm(22, "opt", &["-passes=verify", "large.bc", "-o", "/dev/null"]);
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
        let change = |request: &mut Request| (request.kind, request.generation) = (kind, generation);
        let small = bench.wrap("small.ll", u64::MAX, &images, change)?;
        bench.wrap("large.ll", 0, &images, change)?;
        // LLVM prints strings of zeros otherwise than it reads them.
        if bench.llvm(22, "llvm-as", &["large.ll", "-o", "large.bc"]).is_some() {
            let large = bench.llvm(22, "llvm-dis", &["large.bc", "-o", "-"]).unwrap();
            assert_eq!(without_name(&large), without_name(&small), "{kind:?} {generation:?}");
        }
    }
    Ok(())
}

/// A section's name, contents, flags and symbols.
type Section = (String, Vec<u8>, object::SectionFlags, Vec<String>);

/// The sections of an object.
fn sections(object: &[u8]) -> Result<Vec<Section>> {
    let file = object::File::parse(object)?;
    let mut all = Vec::new();
    for section in file.sections() {
        let mut symbols: Vec<String> = file
            .symbols()
            .filter(|symbol| symbol.section_index() == Some(section.index()) && symbol.kind() != object::SymbolKind::Section)
            .flat_map(|symbol| symbol.name().map(|name| format!("{name}={}", symbol.address())))
            .collect();
        symbols.sort();
        all.push((section.name()?.to_owned(), section.data()?.to_vec(), section.flags(), symbols));
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
            let large = bench.wrap("large.o", 0, &images, change).map_err(|error| format!("{host} {kind:?}: {error:?}"))?;
            let large = sections(&large)?;
            let name = match (kind, generation) {
                (OffloadKind::OpenMp, Generation::Llvm14) if host.contains("windows") => ".rdata$offload",
                (OffloadKind::OpenMp, Generation::Llvm14) => ".rodata.offload",
                (OffloadKind::OpenMp, _) => ".llvm.offloading",
                (OffloadKind::Cuda, _) => ".nv_fatbin",
                (OffloadKind::Hip, _) => ".hip_fatbin",
                (OffloadKind::Sycl, _) => ".sycl_offloading",
            };
            let found = large.iter().find(|section| section.0 == name).ok_or_else(|| format!("{host}: no {name}"))?;
            // PowerPC's compiler makes one variable of several small ones, and on Windows an empty one takes a byte.
            let loose = host.starts_with("powerpc") || host.contains("windows");
            let same = small.iter().find(|section| section.0 == name);
            match kind {
                _ if generation == Generation::Llvm21 && !loose => assert_eq!(Some(found), same, "{host} {kind:?}"),
                OffloadKind::OpenMp => {
                    // LLVM aligns arrays without a section by their lengths.
                    let own = |symbol: &&String| symbol.contains(".omp_offloading.device_image");
                    let mut starts: Vec<usize> =
                        found.3.iter().filter(own).filter_map(|symbol| symbol.split_once('=')?.1.parse().ok()).collect();
                    starts.sort_unstable();
                    assert_eq!(starts.len(), images.len(), "{host}");
                    for (start, image) in starts.into_iter().zip(&images) {
                        assert!(found.1[start..].starts_with(image), "{host}: {start}");
                    }
                }
                OffloadKind::Sycl => assert!(found.1.starts_with(b"ONE\0\0\0\0\0"), "{host}"),
                _ => assert_eq!(Some(&found.1), same.map(|section| &section.1), "{host} {kind:?}"),
            }
            assert!(!large.iter().any(|section| section.0.starts_with(".bss.")), "{host}");
        }
    }
    Ok(())
}

#[test]
fn assembly_is_the_object_written_down() -> Outcome {
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
                bench.llvm(22, "clang", &["-target", host, "-c", "written.s", "-o", "written.o"]);
                let written = sections(&fs::read(bench.at("written.o"))?)?;
                if host.starts_with("powerpc") {
                    // Its compiler sorts small constants by their size.
                    continue;
                }
                let of =
                    |all: &[Section], name: &str| all.iter().find(|section| section.0 == name).map(|section| section.1.clone());
                for name in [".llvm.offloading", ".nv_fatbin", ".hip_fatbin", ".sycl_offloading"] {
                    assert_eq!(of(&written, name), of(&direct, name), "{host} {kind:?} {generation:?} {limit}: {name}");
                }
                if generation == Generation::Llvm14 {
                    // Without a section that says so, LLVM aligns arrays by their lengths.
                    let constants = of(&written, ".rodata").or(of(&written, ".rdata")).ok_or("no constants")?;
                    let found = |image: &Vec<u8>| image.is_empty() || constants.windows(image.len()).any(|part| part == image);
                    assert!(images.iter().all(found), "{host} {limit}");
                }
            }
        }
    }
    Ok(())
}

/// The lines of a printed module that hold this.
fn lines<'a>(text: &'a str, what: &str) -> Vec<&'a str> {
    text.lines().filter(|line| line.contains(what)).collect()
}

fn binary(arch: &str, image: &[u8]) -> Vec<u8> {
    let strings = [("triple", "amdgcn-amd-amdhsa"), ("arch", arch)];
    offload_binary::write(crate::model::ImageKind::Object, 1, 0, &strings, image)
}

#[test]
fn w3_each_image_of_an_input_is_registered() -> Outcome {
    let bench = Bench::new();
    let three = [binary("gfx906", b"FIRST"), binary("gfx90a", b"SECOND--"), binary("gfx942", b"THIRD")].concat();
    for generation in [Generation::Llvm21, Generation::Llvm14] {
        for limit in [0, u64::MAX] {
            let change = |request: &mut Request| request.generation = generation;
            let text = bench.wrap("module.ll", limit, &[three.clone(), b"RAW".to_vec()], change)?;
            let text = String::from_utf8(text)?;
            assert_eq!(lines(&text, "@.omp_offloading.descriptor = internal constant %__tgt_bin_desc { i32 4,").len(), 1);
            // The input is in the module as it is, and rows point into it.
            assert_eq!(lines(&text, &format!("device_image = internal unnamed_addr constant [{} x i8]", three.len())).len(), 1);
            let rows = lines(&text, "@.omp_offloading.device_images =")[0];
            for image in offload_binary::read_all(&three)? {
                let in_bounds = if generation == Generation::Llvm14 { " inbounds" } else { "" };
                for offset in [image.at, image.at + image.image.len() as u64] {
                    let pointer = format!(
                        "getelementptr{in_bounds} ([{} x i8], ptr @.omp_offloading.device_image, i64 0, i64 {offset})",
                        three.len()
                    );
                    assert!(rows.contains(&pointer), "{pointer}\n{rows}");
                }
            }
        }
    }
    Ok(())
}

#[test]
fn w3_a_target_id_cannot_be_that_of_several_images() -> Outcome {
    let bench = Bench::new();
    let arch = |request: &mut Request| {
        request.generation = Generation::Llvm14;
        request.inputs[0].offload_arch = Some("gfx906".to_owned());
    };
    let two = [binary("gfx906", b"FIRST"), binary("gfx906", b"SECOND")].concat();
    let error = bench.wrap("module.ll", 0, &[two], arch).unwrap_err().to_string();
    assert!(error.contains("image.0' holds 2 images, and one --offload-arch"), "{error}");
    let text = String::from_utf8(bench.wrap("module.ll", 0, &[binary("gfx906", b"ONE")], arch)?)?;
    assert_eq!(
        lines(&text, "@__offload_arch = internal constant [7 x i8] c\"gfx906\\00\", section \".offload_arch_list\"").len(),
        1
    );
    Ok(())
}

#[test]
fn w2_a_broken_offload_binary_is_an_error() {
    let bench = Bench::new();
    let whole = binary("gfx906", b"IMAGE");
    for kind in [OffloadKind::OpenMp, OffloadKind::Sycl] {
        for cut in 4..whole.len() {
            let result = bench.wrap("module.bc", 0, &[whole[..cut].to_vec()], |request| request.kind = kind);
            let error = crate::error::chain(&result.expect_err("a cut"));
            assert!(error.contains("image.0'+0x0: ") || error.contains("image.0': +0x0: "), "{error}");
        }
    }
    assert!(!bench.at("module.bc").exists());
    let mut far = whole.clone();
    far[32 + 24 + 4] = 1;
    let error = bench.wrap("module.bc", 0, &[far], |_| ()).unwrap_err();
    assert!(crate::error::chain(&error).contains("image offset past the end"), "{error:?}");
}

#[test]
fn w1_sizes_are_the_hosts() -> Outcome {
    let bench = Bench::new();
    let text = bench.wrap("module.ll", 0, &[b"X".to_vec()], |request| {
        request.generation = Generation::Llvm14;
        request.host_triple = "i386-pc-linux-gnu".to_owned();
    })?;
    let text = String::from_utf8(text)?;
    assert_eq!(lines(&text, "%__tgt_offload_entry = type { ptr, ptr, i32, i32, i32 }").len(), 1, "{text}");
    assert_eq!(lines(&text, "target datalayout = \"e-m:e-p:32:32").len(), 1, "{text}");
    Ok(())
}

#[test]
fn compressed_images_are_registered_inflated() -> Outcome {
    let bench = Bench::new();
    let image = b"COMPRESSED".repeat(100);
    // Version 3: everything after the header is compressed.
    let plain = version_2(&image);
    let packed = zstd::encode_all(&plain[40..], 3)?;
    let mut binary = plain[..40].to_vec();
    binary[4] = 3;
    binary[8..16].copy_from_slice(&(40 + packed.len() as u64).to_le_bytes());
    binary[32..40].copy_from_slice(&(plain.len() as u64).to_le_bytes());
    binary.extend(packed);
    let text = bench.wrap("module.ll", 0, &[binary], |_| ())?;
    let text = String::from_utf8(text)?;
    let bytes = lines(&text, "@.omp_offloading.device_image =")[0];
    assert!(bytes.contains(&String::from_utf8(image)?), "{bytes}");
    assert_eq!(lines(&text, "bin_desc { i32 1,").len(), 1);
    Ok(())
}

/// A binary of version 2 with room for the size that version 3 adds to the header, and no strings.
fn version_2(image: &[u8]) -> Vec<u8> {
    let mut binary = offload_binary::MAGIC.to_vec();
    binary.extend(2u32.to_le_bytes());
    for field in [80 + image.len() as u64, 40, 1, 0] {
        binary.extend(field.to_le_bytes());
    }
    binary.extend([1, 0, 1, 0, 0, 0, 0, 0]);
    for field in [80, 0, 80, image.len() as u64] {
        binary.extend(field.to_le_bytes());
    }
    binary.extend(image);
    binary
}

#[test]
fn what_cannot_be_wrapped_is_an_error() {
    let bench = Bench::new();
    let fails = |images: &[&[u8]], change: &dyn Fn(&mut Request)| {
        let images: Vec<_> = images.iter().map(|image| image.to_vec()).collect();
        crate::error::chain(&bench.wrap("module.bc", 0, &images, change).expect_err("it cannot"))
    };
    let error = fails(&[b"X"], &|request| request.host_triple = "bogus".to_owned());
    assert!(error.starts_with("'bogus': unsupported target triple: "), "{error}");
    let error = fails(&[b"X", b"Y"], &|request| request.kind = OffloadKind::Hip);
    assert_eq!(error, "CUDA / HIP offloading uses a single fatbinary or offload bundle");
    let error = fails(&[b"X"], &|request| request.kind = OffloadKind::Sycl);
    assert!(error.contains("not an offload binary"), "{error}");
    let error = fails(&[b"X"], &|request| request.inputs[0].path = "nowhere".into());
    assert_eq!(error, "'nowhere': No such file or directory");
    let error = fails(&[b"X"], &|request| request.inputs[0].path = "/".into());
    assert_eq!(error, "'/': Is a directory");
    assert!(!bench.at("module.bc").exists());
}
