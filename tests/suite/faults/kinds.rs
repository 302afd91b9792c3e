//! Faults of links with device code of several kinds, or of HIP, CUDA and SYCL: F7, F19, F29.

use std::path::{Path, PathBuf};
use std::process::Command;

use libtest_mimic::{Failed, Trial};

use crate::kinds::{Case, Wrapper, stubs};
use crate::kit::{AMD, Image, NVIDIA};
use crate::many::expect_one_result;
use crate::support::{
    LLVM, Outcome, Work, expect_equal, expect_in, llvm, made, output, passed, root, run,
    run_failing, test, text, with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        with_llvm("faults::f07_kinds_in_one_link_give_the_same_bytes", f07),
        test(
            "releases::faults::f07_kinds_in_one_link_by_the_real_tools",
            f07_real,
        ),
        test("releases::faults::f19_hip_objects_of_llvm_19", f19_release),
        with_llvm("faults::f19_kind_3_on_an_amd_gpu_is_hip", f19),
        with_llvm("faults::f29_all_groups_of_sycl_are_registered", f29),
    ]
}

/// A device compiler with a random duration. SYCL images must be OffloadBinaries, so it copies them
/// from prepared files. Other images are the concatenated inputs.
const DEVICE: &str = r#"#!/bin/sh
[ "$1" = -dumpversion ] && { echo 22.1.8; exit; }
sleep 0.0$(($$ % 4))
for word; do
  case $last in -o) out=$word ;; esac
  case $word in *.o) inputs="$inputs $word" ;; --target=*) target=${word#--target=} ;; --sycl-link) sycl=1 ;; esac
  last=$word
done
[ "$sycl" ] && inputs=$target.pack
cat $inputs > "$out"
"#;

/// A `fatbinary` that writes its options, without directories, and its images to the output.
const FATBINARY: &str = r#"#!/bin/sh
out=$3
for word; do case $word in --image3=*) echo "${word%%,file=*}"; cat "${word##*file=}" ;; esac; done > "$out"
"#;

fn image<'a>(kind: &'a str, triple: &'a str, arch: &'a str, bytes: &'a [u8]) -> Image<'a> {
    Image {
        triple,
        arch,
        kind,
        bytes,
    }
}

/// Ten device links of four kinds.
fn f07() -> Outcome {
    let work = Work::new();
    let spirv = ["spirv64-unknown-unknown", "spirv32-unknown-unknown"];
    for triple in spirv {
        work.pack(
            &format!("{triple}.pack"),
            &[image("sycl", triple, "generic", triple.as_bytes())],
        )?;
    }
    for name in ["one", "two"] {
        let bytes = format!("{name}\n").into_bytes();
        let targets = [
            ("openmp", "x86_64-pc-linux-gnu", "generic"),
            ("openmp", AMD, "gfx90a"),
            ("openmp", AMD, "gfx1100"),
            ("cuda", NVIDIA, "sm_80"),
            ("cuda", NVIDIA, "sm_90"),
            ("hip", AMD, "gfx906"),
            ("hip", AMD, "gfx908"),
            ("hip", AMD, "gfx942"),
            ("sycl", spirv[0], "generic"),
            ("sycl", spirv[1], "generic"),
        ];
        let images: Vec<Image<'_>> = targets
            .iter()
            .map(|(kind, triple, arch)| image(kind, triple, arch, &bytes))
            .collect();
        work.fat(&format!("{name}.o"), &images)?;
    }
    let compiler = work.tool("tools/clang", DEVICE);
    work.tool("sdk/bin/fatbinary", FATBINARY);
    expect_one_result(60, |jobs| {
        let mut link = work.command(made().links.join("clang-linker-wrapper"));
        link.env("OFFLD_CLANG", &compiler)
            .args(["--host-triple=x86_64-unknown-linux-gnu", "--cuda-path=sdk"]);
        link.arg(format!("--linker-path={LLVM}/ld.lld"))
            .arg(format!("--wrapper-jobs={jobs}"));
        run(link.args(["-shared", "-o", "x.so", "one.o", "two.o"]))?;
        Ok(work.path().join("x.so"))
    })?;
    work.expect_no_temps()?;
    let symbols = work.run(llvm("llvm-nm"), ["--undefined-only", "x.so"])?;
    for wanted in [
        "__tgt_register_lib",
        "__cudaRegisterFatBinary",
        "__hipRegisterFatBinary",
        "__sycl_register_lib",
    ] {
        expect_in(&symbols, &format!(" {wanted}\n"))?;
    }
    passed()
}

fn f07_real() -> Outcome {
    let case = Case::named("mixed", 22);
    let tools = match case.tools() {
        Ok(tools) => tools,
        Err(missing) => return missing,
    };
    let work = Work::new();
    case.compile(&work, &tools, Wrapper::Ours)?;
    expect_one_result(6, |jobs| {
        case.link(
            &work,
            &tools,
            Wrapper::Ours,
            &[&format!("-Wl,--wrapper-jobs={jobs}")],
        )?;
        Ok(work.path().join("program"))
    })?;
    expect_equal("the ledger", &case.text("ledger"), &case.run(&work)?.1)?;
    passed()
}

/// Objects from LLVM 19, linked by LLVM 22's driver. Its own wrapper treats kind 3 as OpenMP and
/// CUDA.
fn f19_release() -> Outcome {
    let (old, new) = (Case::named("hip-rdc", 19), Case::named("hip-rdc", 22));
    let (old_tools, new_tools) = match (old.tools(), new.tools()) {
        (Ok(old), Ok(new)) => (old, new),
        (Err(missing), _) | (_, Err(missing)) => return missing,
    };
    let work = Work::new();
    old.compile(&work, &old_tools, Wrapper::Ours)?;
    new.link(&work, &new_tools, Wrapper::Ours, &[])?;
    work.expect_no_temps()?;
    let (printed, ledger) = old.run(&work)?;
    expect_equal("stdout", &old.text("expect"), &printed)?;
    expect_equal("the ledger", &old.text("ledger"), &ledger)?;
    if new.link(&work, &new_tools, Wrapper::Theirs, &[]).is_ok()
        && old.run(&work).is_ok_and(|(_, theirs)| theirs == ledger)
    {
        return Err("LLVM 22's wrapper links HIP objects of LLVM 19 rightly".into());
    }
    passed()
}

/// A host object of `source` with an image of kind 3, which meant HIP up to LLVM 20.
fn old_kind(work: &Work, name: &str, source: &Path, flags: &[&str]) -> Result<PathBuf, Failed> {
    let packed = work.pack(
        &format!("{name}.pack"),
        &[image("hip", AMD, "gfx90a", b"image")],
    )?;
    let mut bytes = std::fs::read(&packed)?;
    // The kind is the second field of the entry, which follows the header.
    expect_equal("the kind HIP has today", "4", &bytes[34].to_string())?;
    bytes[34] = 3;
    std::fs::write(&packed, bytes)?;
    let object = work.path().join(name);
    let mut compile = work.command(llvm("clang"));
    compile
        .args(flags)
        .arg("-c")
        .arg(source)
        .arg("-o")
        .arg(&object);
    run(compile
        .arg("-Xclang")
        .arg(format!("-fembed-offload-object={}", packed.display())))?;
    Ok(object)
}

fn f19() -> Outcome {
    let work = Work::new();
    let flags = ["-fPIC", "-DOLD", "-DSECTION=\"hip_offloading_entries\""];
    old_kind(&work, "a.o", &root().join("tests/kinds/flags.c"), &flags)?;
    let main = work.file("main.c", "int main(void) { return 0; }\n");
    run(work.command(llvm("clang")).arg("-c").arg(main))?;
    run(&mut program(&work, &["main.o", "a.o", "-lamdhip64"]))?;
    let ledger = ledger(&work)?;
    for wanted in [
        "hip register lib=0 version=1\n",
        " id=hip-amdgcn-amd-amdhsa--gfx90a ",
        "hip function lib=0 name=kernel_by_size threads=-1\n",
        "hip surface lib=0 name=surface_extern type=3 extern=1\n",
        "hip unregister lib=0\n",
    ] {
        expect_in(&ledger, wanted)?;
    }
    // LLVM's wrapper treats the image as CUDA. This failing `fatbinary` precedes that of an
    // installed CUDA in `PATH`.
    work.tool("path/fatbinary", "#!/bin/sh\nexit 1\n");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(work.path().join("path")).chain(std::env::split_paths(&path));
    let path = std::env::join_paths(folders).expect("folders without colons");
    let theirs = run_failing(work.reference(["-o", "x", "a.o"]).env("PATH", path))?;
    expect_in(&theirs, "'fatbinary' failed")?;
    passed()
}

/// A program's link with offld, GNU ld and the stand-in for the device compiler.
fn program(work: &Work, words: &[&str]) -> Command {
    let compiler = work.tool("tools/clang", DEVICE);
    let mut link = work.command(llvm("clang"));
    link.env("OFFLD_CLANG", compiler)
        .arg("--offload-link")
        .arg("-B")
        .arg(&made().links);
    link.args(["-o", "program"])
        .arg(format!("-L{}", stubs().display()))
        .args(words);
    link
}

/// The calls with which the program registers its images.
fn ledger(work: &Work) -> Result<String, Failed> {
    let file = work.path().join("ledger");
    let _ = std::fs::remove_file(&file);
    run(work
        .command("./program")
        .env("OFFLD_LEDGER", &file)
        .env("LD_LIBRARY_PATH", stubs()))?;
    Ok(std::fs::read_to_string(file)?)
}

fn f29() -> Outcome {
    let work = Work::new();
    let groups = ["spirv64-unknown-unknown", "spirv64-intel"];
    for triple in groups {
        let file = work.file(triple, format!("image for {triple}"));
        let pack = format!(
            "--image=file={},triple={triple},arch=,kind=sycl,symbols=kernel_of_{triple}",
            file.display()
        );
        work.run(
            llvm("llvm-offload-binary"),
            ["-o", &format!("{triple}.pack"), &pack],
        )?;
    }
    let images = groups.map(|triple| image("sycl", triple, "generic", b"SYCL"));
    work.fat("a.o", &images)?;
    let main = work.file("main.c", "int main(void) { return 0; }\n");
    run(work.command(llvm("clang")).arg("-c").arg(main))?;
    run(&mut program(&work, &["main.o", "a.o", "-lsycl"]))?;
    let ledger = ledger(&work)?;
    expect_in(&ledger, "sycl register lib=0 version=1 images=2\n")?;
    for (index, triple) in groups.iter().enumerate() {
        expect_in(
            &ledger,
            &format!("sycl image lib=0 index={index} target={triple} "),
        )?;
        expect_in(&ledger, &format!(" image={index} name=kernel_of_{triple} "))?;
    }
    let theirs = output(&mut work.reference(["--print-wrapped-module", "-o", "x", "a.o"]))?;
    let theirs = text(&theirs.stderr);
    expect_equal(
        "images LLVM registers",
        "1",
        &theirs.matches("c\"image for ").count().to_string(),
    )?;
    passed()
}
