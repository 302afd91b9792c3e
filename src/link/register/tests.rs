//! Plans for payloads of each kind, small and large.

use std::io;

use super::plan::{of as planned, tag_of_contents};
use super::*;
use crate::link::payload::{self, PayloadImage, RegisteredImage};
use offld_system::io::rope::Rope;
use offld_system::session::SessionOptions;
use offld_system::shell::Shell;
use offload_files::image_object::ImageSymbol;
use offload_formats::model::{Generation, ImageKind, OffloadKind, OffloadKinds};
use offload_formats::offload_binary;
use offload_formats::registration::{ImagePlace, Images, Modules, SyclImage};
use std::error::Error;

type Outcome = Result<(), Box<dyn Error>>;

fn plan_of(payload: &Payload) -> Result<(Plan, Vec<StreamedImage>)> {
    in_context("a.out", false, |context| planned(payload, context))
}

/// Like [`plan_of`], if the user is shown the module.
fn shown_plan_of(payload: &Payload) -> Result<(Plan, Vec<StreamedImage>)> {
    in_context("a.out", false, |context| {
        planned(
            payload,
            &RegisterContext {
                settings: &printed(),
                ..*context
            },
        )
    })
}

/// Like [`plan_of`], for the runtime of a later release.
fn sycl_plan_of(payload: &Payload, sycl: sycl::Registration) -> Result<(Plan, Vec<StreamedImage>)> {
    let later =
        |context: &RegisterContext<'_>| planned(payload, &RegisterContext { sycl, ..*context });
    in_context("a.out", false, later)
}

/// The settings that print the module.
fn printed() -> LinkSettings {
    let mut settings = LinkSettings::default();
    settings.run.print_wrapped_module = true;
    settings
}

/// Returns the result of `work` for a link to `output` without LLVM or a cache.
fn in_context<T>(
    output: &str,
    relocatable: bool,
    work: impl FnOnce(&RegisterContext<'_>) -> T,
) -> T {
    let shell = Arc::new(Shell::from_write("offld", Box::new(std::io::sink())));
    let session = Session::new(shell, SessionOptions::default());
    let mut settings = LinkSettings::default();
    settings.host.relocatable = relocatable;
    work(&RegisterContext {
        settings: &settings,
        output: Path::new(output),
        host_triple: "x86_64-unknown-linux-gnu",
        sycl: sycl::Registration::Llvm22,
        late: false,
        device_compiler: Some(22),
        protection: 0,
        llvm: &Llvm::new(&session),
        cache: None,
    })
}

fn payload(kind: OffloadKind, dir: &Path, files: &[&[u8]]) -> Result<Payload, Box<dyn Error>> {
    let mut images = Vec::new();
    for (index, bytes) in files.iter().enumerate() {
        let body = dir.join(format!("image{index}"));
        std::fs::write(&body, bytes)?;
        images.push(PayloadImage {
            contents: Rope::of_file(body)?,
            image: 0..bytes.len() as u64,
            file: None,
            target: None,
        });
    }
    Ok(Payload {
        kind,
        generation: Generation::Llvm21,
        modules: Modules::default(),
        images,
    })
}

fn sycl_binary(triple: &str, symbols: &str, image: &[u8]) -> Vec<u8> {
    let strings = [("triple", triple), ("symbols", symbols)];
    offload_binary::write(
        ImageKind::Object,
        OffloadKind::Sycl as u16,
        0,
        &strings,
        image,
    )
}

#[test]
fn cuda_and_hip_take_one_file() -> Outcome {
    let dir = tempfile::tempdir()?;
    for kind in [OffloadKind::Cuda, OffloadKind::Hip] {
        let (plan, streamed) = shown_plan_of(&payload(kind, dir.path(), &[b"FILE"])?)?;
        let place = ImagePlace::Inline(b"FILE".to_vec());
        assert_eq!(
            plan.images,
            if kind == OffloadKind::Cuda {
                Images::Cuda(place)
            } else {
                Images::Hip(place)
            }
        );
        assert!(streamed.is_empty(), "{streamed:?}");
        for files in [&[][..], &[&b"ONE"[..], b"TWO"]] {
            assert!(plan_of(&payload(kind, dir.path(), files)?).is_err());
        }
    }
    Ok(())
}

#[test]
fn registration_code_does_not_depend_on_the_images() -> Outcome {
    let dir = tempfile::tempdir()?;
    let none = Modules::default();
    let groups_of = |payload: &Payload| {
        let image = RegisteredImage {
            kinds: OffloadKinds::default().with(payload.kind),
            generation: payload.generation,
            modules: &none,
        };
        payload::groups(std::iter::repeat_n(image, payload.images.len()))
    };
    for kind in [OffloadKind::OpenMp, OffloadKind::Cuda, OffloadKind::Hip] {
        let mut plans = Vec::new();
        for bytes in [&b"IMAGE"[..], &[7; 3_000_000]] {
            let mut payload = payload(kind, dir.path(), &[bytes])?;
            payload.images[0].image = 1..bytes.len() as u64 - 1;
            let (plan, streamed) = plan_of(&payload)?;
            let [image] = streamed.as_slice() else {
                return Err("not one image".into());
            };
            let [start, stop] = image.symbols.as_slice() else {
                return Err("not two symbols".into());
            };
            assert_eq!((start.at, start.size), (1, bytes.len() as u64 - 2));
            assert_eq!(
                *stop,
                ImageSymbol {
                    name: format!("{}.end", start.name),
                    at: bytes.len() as u64 - 1,
                    size: 0
                }
            );
            let groups = groups_of(&payload);
            let before = in_context("a.out", false, |context| plan::before(&groups[0], context));
            assert_eq!((groups.len(), before.as_ref()), (1, Some(&plan)));
            plans.push(plan);
        }
        assert_eq!(plans[0], plans[1]);
    }
    // A relocatable output and a module that is shown contain the images, and SYCL's registration
    // lists their kernels.
    let one = payload(OffloadKind::OpenMp, dir.path(), &[b"IMAGE"])?;
    let group = &groups_of(&one)[0];
    assert_eq!(
        in_context("a.o", true, |context| plan::before(group, context)),
        None
    );
    assert_eq!(
        in_context("a.out", false, |context| plan::before(
            group,
            &RegisterContext {
                settings: &printed(),
                ..*context
            }
        )),
        None
    );
    let group = payload::Group {
        kind: OffloadKind::Sycl,
        ..group.clone()
    };
    assert_eq!(
        in_context("a.out", false, |context| plan::before(&group, context)),
        None
    );
    Ok(())
}

#[test]
fn f29_sycl_takes_all_images_of_all_files() -> Outcome {
    let dir = tempfile::tempdir()?;
    let first = [
        sycl_binary("spirv64", "k1\nk2\n", b"ONE"),
        sycl_binary("spirv64", "", b"TWO"),
    ]
    .concat();
    let second = sycl_binary("spirv64_gen", "k1", b"THREE");
    let (plan, _) = plan_of(&payload(OffloadKind::Sycl, dir.path(), &[&first, &second])?)?;
    let image = |triple: &str, symbols: &[&str], bytes: &[u8]| SyclImage {
        place: ImagePlace::Inline(bytes.to_vec()),
        image_kind: ImageKind::Object,
        triple: triple.to_owned(),
        symbols: symbols.iter().map(|&symbol| symbol.to_owned()).collect(),
    };
    let wanted = vec![
        image("spirv64", &["k1", "k2"], b"ONE"),
        image("spirv64", &[], b"TWO"),
        image("spirv64_gen", &["k1"], b"THREE"),
    ];
    assert_eq!(plan.images, Images::Sycl(wanted));
    // A dry run leaves empty files.
    let (plan, _) = plan_of(&payload(OffloadKind::Sycl, dir.path(), &[b""])?)?;
    let placeholder = SyclImage {
        image_kind: ImageKind::None,
        ..image("", &[""], b"")
    };
    assert_eq!(plan.images, Images::Sycl(vec![placeholder]));
    let (plan, _) = sycl_plan_of(
        &payload(OffloadKind::Sycl, dir.path(), &[b""])?,
        sycl::Registration::Llvm23,
    )?;
    assert_eq!(
        plan.images,
        Images::SyclBinary(ImagePlace::Inline(Vec::new()), sycl::Registration::Llvm23)
    );
    let error = plan_of(&payload(OffloadKind::Sycl, dir.path(), &[b"SPIR-V"])?)
        .err()
        .ok_or("no error")?;
    assert!(
        format!("{error:#}").contains("image0`: +0x0: not an offload binary"),
        "{error:#}"
    );
    Ok(())
}

#[test]
fn later_runtimes_of_sycl_take_one_binary_of_all_images() -> Outcome {
    let dir = tempfile::tempdir()?;
    let large = vec![7; (1 << 20) + 1];
    let first = [
        sycl_binary("spirv64", "k1\nk2\n", b"ONE"),
        sycl_binary("spirv64", "", b"TWO"),
    ]
    .concat();
    for (third, streamed_images) in [(&b"THREE"[..], 0), (&large, 1)] {
        let payload = payload(
            OffloadKind::Sycl,
            dir.path(),
            &[&first, &sycl_binary("spirv64_gen", "k1", third)],
        )?;
        for release in [sycl::Registration::Llvm23, sycl::Registration::Llvm24] {
            let (plan, streamed) = sycl_plan_of(&payload, release)?;
            let Images::SyclBinary(place, planned) = plan.images else {
                return Err("not one binary".into());
            };
            assert_eq!((planned, streamed.len()), (release, streamed_images));
            let binary = match &place {
                ImagePlace::Inline(bytes) => bytes.clone(),
                _ => streamed[0].contents.read()?,
            };
            assert_eq!(
                (place.size(), offload_binary::extent(&binary)),
                (binary.len() as u64, binary.len() as u64)
            );
            let read = offload_binary::read_all(&binary)?;
            let read: Vec<(String, &[u8], Vec<String>)> = read
                .iter()
                .map(|image| {
                    (
                        image.triple().into_owned(),
                        image.image.as_ref(),
                        sycl::kernels(image),
                    )
                })
                .collect();
            let names = |names: &[&str]| {
                names
                    .iter()
                    .map(|&name| name.to_owned())
                    .collect::<Vec<_>>()
            };
            let wanted: [(&str, &[u8], Vec<String>); 3] = [
                ("spirv64", b"ONE", names(&["k1", "k2"])),
                ("spirv64", b"TWO", names(&[])),
                ("spirv64_gen", third, names(&["k1"])),
            ];
            assert_eq!(
                read,
                wanted.map(|(triple, bytes, names)| (triple.to_owned(), bytes, names))
            );
        }
    }
    Ok(())
}

#[test]
fn f32_large_images_are_streamed_from_where_they_are() -> Outcome {
    let dir = tempfile::tempdir()?;
    let large = vec![7; (1 << 20) + 1];
    let file = [
        sycl_binary("spirv64", "k1", &large),
        sycl_binary("spirv64", "k2", b"SMALL"),
    ]
    .concat();
    let (plan, streamed) = plan_of(&payload(OffloadKind::Sycl, dir.path(), &[&file])?)?;
    let Images::Sycl(images) = plan.images else {
        return Err("not SYCL".into());
    };
    for (image, source) in images.iter().zip(&streamed) {
        assert_eq!(
            image.place,
            ImagePlace::External {
                symbol: source.symbols[0].name.clone(),
                size: source.contents.size()
            }
        );
        assert!(
            source.symbols[0].name.starts_with(".sycl_offloading.data."),
            "{source:?}"
        );
    }
    let bytes: Vec<Vec<u8>> = streamed
        .iter()
        .map(|image| image.contents.read())
        .collect::<std::io::Result<_>>()?;
    assert_eq!(bytes, [large.clone(), b"SMALL".to_vec()]);

    let mut names = Vec::new();
    for kind in [OffloadKind::Cuda, OffloadKind::Hip] {
        for generation in [Generation::Llvm15, Generation::Llvm21] {
            let (_, streamed) = plan_of(&Payload {
                generation,
                ..payload(kind, dir.path(), &[&large])?
            })?;
            names.push(streamed[0].symbols[0].name.clone());
        }
    }
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 4, "{names:?}");
    Ok(())
}

#[test]
fn symbols_of_relocatable_outputs_are_distinct_and_always_the_same() -> Outcome {
    let dir = tempfile::tempdir()?;
    let tags = |relocatable: bool| -> Result<Vec<u64>, Box<dyn Error>> {
        let mut tags = Vec::new();
        for (output, bytes) in [("a.o", "one"), ("a.o", "two"), ("b.o", "one")] {
            for _ in 0..2 {
                let payload = payload(OffloadKind::Hip, dir.path(), &[bytes.as_bytes()])?;
                tags.push(in_context(output, relocatable, |context| {
                    tag_of_contents(&payload, context)
                })?);
            }
        }
        assert!(tags.chunks(2).all(|twice| twice[0] == twice[1]));
        tags.sort_unstable();
        tags.dedup();
        Ok(tags)
    };
    assert_eq!((tags(true)?.len(), tags(false)?.len()), (3, 1));
    // Names that only this program sees do not depend on the images, so no image is read.
    let gone = payload(OffloadKind::Hip, dir.path(), &[b"one"])?;
    std::fs::remove_file(dir.path().join("image0"))?;
    assert!(in_context("a.out", false, |context| tag_of_contents(&gone, context)).is_ok());
    assert!(in_context("a.o", true, |context| tag_of_contents(&gone, context)).is_err());
    Ok(())
}

#[test]
fn large_images_have_objects_of_their_own_in_the_order_of_the_images() -> Outcome {
    let dir = tempfile::tempdir()?;
    let sizes = [LARGE, 5, 6, LARGE - 1, LARGE + 1, LARGE].map(usize::try_from);
    let bytes = sizes
        .into_iter()
        .enumerate()
        .map(|(at, size)| Ok(vec![at as u8; size?]))
        .collect::<Result<Vec<_>>>()?;
    let files: Vec<&[u8]> = bytes.iter().map(Vec::as_slice).collect();
    let payload = payload(OffloadKind::OpenMp, dir.path(), &files)?;
    let (plan, streamed) = plan_of(&payload)?;
    let shell = std::sync::Arc::new(offld_system::shell::Shell::from_write(
        "test",
        Box::new(io::sink()),
    ));
    let session = Session::new(shell, offld_system::session::SessionOptions::default());
    let objects = stream_images(
        &plan,
        registration::plan_section(&plan),
        &streamed,
        "a.out.openmp.image",
        &session,
    )?;
    let mut found = Vec::new();
    for path in &objects {
        let bytes = std::fs::read(path)?;
        let file = object::File::parse(&bytes[..])?;
        let sections = object::Object::sections(&file);
        let sections = sections
            .filter(|section| object::ObjectSection::name(section) == Ok(".llvm.offloading"));
        found.push(
            sections
                .map(|section| Ok(object::ObjectSection::data(&section)?[0]))
                .collect::<object::Result<Vec<u8>>>()?,
        );
    }
    assert_eq!(found, [&[0][..], &[1, 2, 3], &[4], &[5]]);
    Ok(())
}
