//! `offld replace`: other bytes in place of images.

use libtest_mimic::Trial;

use super::{HIP, hip_object, images, object, program, ran, refused, stdout_of};
use crate::support::{
    Outcome, Work, ensure, expect_equal, expect_in, llvm, offld, output, passed, run, with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        with_llvm(
            "edit::replace::an_image_of_a_program_is_another_one",
            program_image,
        ),
        with_llvm("edit::replace::images_in_bundles_get_any_size", bundles),
        with_llvm(
            "edit::replace::what_is_for_another_device_is_refused",
            another_device,
        ),
        with_llvm(
            "edit::replace::an_image_without_registered_kernels_is_refused",
            without_kernels,
        ),
        with_llvm(
            "edit::replace::an_image_without_the_kernels_of_the_old_one_is_refused",
            without_old_kernels,
        ),
    ]
}

fn program_image() -> Outcome {
    let work = Work::new();
    object(&work)?;
    program(&work, "both", &[])?;
    stdout_of(&work, ["inspect", "--extract", "images", "both"])?;
    let cpu = std::fs::read_dir(work.path().join("images"))?.filter_map(Result::ok);
    let cpu = cpu
        .map(|entry| entry.path())
        .find(|path| path.display().to_string().contains("x86_64"))
        .ok_or("no image")?;
    // The image is smaller without symbols, and larger with zeros appended.
    run(work
        .command(llvm("llvm-strip"))
        .arg(&cpu)
        .args(["-o", "small.img"]))?;
    let mut large = std::fs::read(&cpu)?;
    large.resize(large.len() + 100_000, 0);
    work.file("large.img", large);
    for image in ["small.img", "large.img"] {
        stdout_of(
            &work,
            [
                "replace",
                "both",
                "--image",
                &format!("0={image}"),
                "-o",
                "new",
            ],
        )?;
        expect_equal("output", "4950 device\n", &ran(&work, "new")?)?;
        let size = std::fs::metadata(work.path().join(image))?.len();
        expect_in(
            &stdout_of(&work, ["inspect", "--json", "new"])?,
            &format!("\"size\": {size}"),
        )?;
    }
    passed()
}

fn bundles() -> Outcome {
    let work = Work::new();
    for words in [&[][..], &["--offload-compress"]] {
        hip_object(&work, words)?;
        stdout_of(&work, ["inspect", "--extract", "images", "kernels.o"])?;
        let image = std::fs::read_dir(work.path().join("images"))?
            .filter_map(Result::ok)
            .map(|entry| entry.path());
        let image = image
            .into_iter()
            .find(|path| path.display().to_string().contains("gfx908"))
            .ok_or("no image")?;
        let mut bytes = std::fs::read(&image)?;
        bytes.resize(bytes.len() + 9999, 0);
        work.file("larger.hsaco", bytes);
        let before = images(&work, "kernels.o")?;
        stdout_of(
            &work,
            [
                "replace",
                "kernels.o",
                "--image",
                "2=larger.hsaco",
                "-o",
                "new.o",
            ],
        )?;
        let after = images(&work, "new.o")?;
        for (number, (one, other)) in before.iter().zip(&after).enumerate() {
            ensure((one == other) != (number == 2), || {
                format!("image {number}: {one}, {other}")
            })?;
        }
        std::fs::remove_dir_all(work.path().join("images"))?;
    }
    passed()
}

fn another_device() -> Outcome {
    let work = Work::new();
    hip_object(&work, &[])?;
    stdout_of(&work, ["inspect", "--extract", "images", "kernels.o"])?;
    let image = std::fs::read_dir(work.path().join("images"))?
        .filter_map(Result::ok)
        .map(|entry| entry.path());
    let image = image
        .into_iter()
        .find(|path| path.display().to_string().contains("gfx908"))
        .ok_or("no image")?;
    let word = format!("1={}", image.display());
    let stderr = refused(
        &work,
        ["replace", "kernels.o", "--image", &word, "-o", "new.o"],
    )?;
    expect_in(&stderr, "an image for gfx908, but image 1 is for gfx1100")?;
    stdout_of(
        &work,
        [
            "replace",
            "kernels.o",
            "--image",
            &word,
            "--force",
            "-o",
            "new.o",
        ],
    )?;
    expect_in(
        &refused(
            &work,
            [
                "replace",
                "kernels.o",
                "--image",
                "77=kernels.o",
                "-o",
                "new.o",
            ],
        )?,
        "no image 77",
    )?;
    passed()
}

/// A replacement without the registered kernels, for a program with one kernel. `--force` accepts
/// it.
fn without_kernels() -> Outcome {
    let work = Work::new();
    object(&work)?;
    program(&work, "app", &[])?;
    work.file("other.c", "int other(void) { return 1; }\n");
    run(work.command(llvm("clang")).args([
        "-shared",
        "-fPIC",
        "-nostdlib",
        "other.c",
        "-o",
        "other.so",
    ]))?;
    let offered = [
        ("/bin/ls", "/bin/ls: lacks kernel `main, line 14`"),
        ("other.so", "other.so: lacks kernel `main, line 14`"),
    ];
    for (image, expected) in offered {
        let word = format!("0={image}");
        let stderr = refused(&work, ["replace", "app", "--image", &word, "-o", "new"])?;
        expect_in(
            &stderr,
            &format!("{expected}, which the host code needs from image 0 (x86_64-pc-linux-gnu"),
        )?;
        expect_in(&stderr, "; pass --force to use the file anyway")?;
        crate::support::expect_no_file(&work.path().join("new"))?;
        let dry = refused(&work, ["replace", "app", "--image", &word, "--dry-run"])?;
        expect_in(&dry, expected)?;
        // The report has the size of a file that could not be changed.
        let mut json = work.command(offld());
        let report =
            output(json.args(["replace", "app", "--image", &word, "--dry-run", "--json"]))?;
        let report: serde_json::Value = serde_json::from_slice(&report.stdout)?;
        let size = std::fs::metadata(work.path().join("app"))?.len();
        expect_equal(
            "sizes",
            &format!("{size} {size}"),
            &format!(
                "{} {}",
                report["files"][0]["before"], report["files"][0]["after"]
            ),
        )?;
        stdout_of(
            &work,
            [
                "replace", "app", "--image", &word, "--force", "-o", "forced",
            ],
        )?;
    }
    passed()
}

/// HIP registers kernels from code, so the old image shows which kernels the host looks up. The
/// same applies to a compressed bundle.
fn without_old_kernels() -> Outcome {
    let work = Work::new();
    work.file(
        "fewer.hip",
        HIP.replace("__global__ void second(float *p) { p[0] *= 2.5f; }\n", "")
            .replace(" second<<<1, 1>>>((float *)p);", ""),
    );
    let mut compile = work.command(llvm("clang++"));
    compile.args([
        "-x",
        "hip",
        "-nogpulib",
        "-nogpuinc",
        "-O1",
        "-cuid=1",
        "--offload-arch=gfx908",
        "--cuda-device-only",
    ]);
    run(compile.args(["--no-gpu-bundle-output", "fewer.hip", "-o", "fewer.hsaco"]))?;
    for words in [&[][..], &["--offload-compress"]] {
        hip_object(&work, words)?;
        let stderr = refused(
            &work,
            [
                "replace",
                "kernels.o",
                "--image",
                "2=fewer.hsaco",
                "-o",
                "new.o",
            ],
        )?;
        expect_in(
            &stderr,
            "fewer.hsaco: lacks kernel `second(float*)`, which the host code needs from image 2 (amdgcn-amd-amdhsa (gfx908))",
        )?;
        stdout_of(
            &work,
            [
                "replace",
                "kernels.o",
                "--image",
                "2=fewer.hsaco",
                "--force",
                "-o",
                "new.o",
            ],
        )?;
    }
    passed()
}
