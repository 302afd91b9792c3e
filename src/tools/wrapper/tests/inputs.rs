//! The supported inputs, and the registrations that the wrapper writes for them.

use super::*;

/// The lines of a printed module that contain `what`.
fn lines<'a>(text: &'a str, what: &str) -> Vec<&'a str> {
    text.lines().filter(|line| line.contains(what)).collect()
}

fn binary(arch: &str, image: &[u8]) -> Vec<u8> {
    let strings = [("triple", "amdgcn-amd-amdhsa"), ("arch", arch)];
    offload_binary::write(
        offload_formats::model::ImageKind::Object,
        1,
        0,
        &strings,
        image,
    )
}

#[test]
fn w3_each_image_of_an_input_is_registered() -> Outcome {
    let bench = Bench::new();
    let three = [
        binary("gfx906", b"FIRST"),
        binary("gfx90a", b"SECOND--"),
        binary("gfx942", b"THIRD"),
    ]
    .concat();
    for generation in [Generation::Llvm21, Generation::Llvm14] {
        for limit in [0, u64::MAX] {
            let change = |request: &mut Request| request.generation = generation;
            let text = bench.wrap(
                "module.ll",
                limit,
                &[three.clone(), b"RAW".to_vec()],
                change,
            )?;
            let text = String::from_utf8(text)?;
            assert_eq!(
                lines(
                    &text,
                    "@.omp_offloading.descriptor = internal constant %__tgt_bin_desc { i32 4,"
                )
                .len(),
                1
            );
            // The module contains the input unchanged, and rows point into it.
            assert_eq!(
                lines(
                    &text,
                    &format!(
                        "device_image = internal unnamed_addr constant [{} x i8]",
                        three.len()
                    )
                )
                .len(),
                1
            );
            let rows = lines(&text, "@.omp_offloading.device_images =")[0];
            for image in offload_binary::read_all(&three)? {
                let in_bounds = if generation == Generation::Llvm14 {
                    " inbounds"
                } else {
                    ""
                };
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
    let error = bench
        .wrap("module.ll", 0, &[two], arch)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("image.0' holds 2 images, but --offload-arch"),
        "{error}"
    );
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
            let result = bench.wrap("module.bc", 0, &[whole[..cut].to_vec()], |request| {
                request.kind = kind
            });
            let error = offload_formats::error::chain(&result.expect_err("a cut"));
            assert!(
                error.contains("image.0'+0x0: ") || error.contains("image.0': +0x0: "),
                "{error}"
            );
        }
    }
    assert!(!bench.at("module.bc").exists());
    let mut far = whole.clone();
    far[32 + 24 + 4] = 1;
    let error = bench.wrap("module.bc", 0, &[far], |_| ()).unwrap_err();
    assert!(
        offload_formats::error::chain(&error).contains("image offset past the end"),
        "{error:?}"
    );
}

#[test]
fn w1_sizes_are_the_hosts() -> Outcome {
    let bench = Bench::new();
    let text = bench.wrap("module.ll", 0, &[b"X".to_vec()], |request| {
        request.generation = Generation::Llvm14;
        request.host_triple = "i386-pc-linux-gnu".to_owned();
    })?;
    let text = String::from_utf8(text)?;
    assert_eq!(
        lines(
            &text,
            "%__tgt_offload_entry = type { ptr, ptr, i32, i32, i32 }"
        )
        .len(),
        1,
        "{text}"
    );
    assert_eq!(
        lines(&text, "target datalayout = \"e-m:e-p:32:32").len(),
        1,
        "{text}"
    );
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

/// A version 2 binary without strings, with space for the size field that version 3 adds to the
/// header.
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
fn invalid_inputs_are_errors() {
    let bench = Bench::new();
    let fails = |images: &[&[u8]], change: &dyn Fn(&mut Request)| {
        let images: Vec<_> = images.iter().map(|image| image.to_vec()).collect();
        offload_formats::error::chain(
            &bench
                .wrap("module.bc", 0, &images, change)
                .expect_err("the input is invalid"),
        )
    };
    let error = fails(&[b"X"], &|request| request.host_triple = "bogus".to_owned());
    assert!(
        error.starts_with("'bogus': unsupported target triple: "),
        "{error}"
    );
    let error = fails(&[b"X", b"Y"], &|request| request.kind = OffloadKind::Hip);
    assert_eq!(
        error,
        "CUDA / HIP offloading uses a single fatbinary or offload bundle"
    );
    let error = fails(&[b"X"], &|request| request.kind = OffloadKind::Sycl);
    assert!(error.contains("not an offload binary"), "{error}");
    let error = fails(&[b"X"], &|request| {
        request.inputs[0].path = "nowhere".into()
    });
    assert_eq!(error, "'nowhere': No such file or directory");
    let error = fails(&[b"X"], &|request| request.inputs[0].path = "/".into());
    assert_eq!(error, "'/': Is a directory");
    let huge = bench.at("huge");
    fs::File::create(&huge)
        .and_then(|file| file.set_len(1 << 32))
        .unwrap();
    let error = fails(&[b"X"], &|request| request.inputs[0].path = huge.clone());
    assert_eq!(
        error,
        "an image of 4294967296 bytes is too large for bitcode: write an object with --emit=o"
    );
    let i386 = "i386-pc-linux-gnu";
    let object = |request: &mut Request| {
        (request.inputs[0].path, request.host_triple, request.emit) =
            (huge.clone(), i386.into(), Emit::Object)
    };
    let error = fails(&[b"X"], &object);
    assert!(error.contains("cannot hold 4294967296 bytes"), "{error}");
    assert!(!bench.at("module.bc").exists());
}
