//! Packing and extracting through the internal functions, in a temporary directory.

#[path = "../../../offload-formats/src/offload_binary/samples.rs"]
mod samples;

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::read::images;
use super::*;
use offld_system::io::file_slice::FileSlice;
use offld_system::session::{Session, SessionOptions};
use offld_system::shell::Shell;
use offload_formats::model::ImageKind;
use samples::{compress, write_shared};

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn session() -> Session {
    Session::new(
        Arc::new(Shell::from_write("test", Box::new(io::sink()))),
        SessionOptions::default(),
    )
}

fn arguments(text: &str) -> ImageArguments {
    ImageArguments::parse(OsStr::new(text))
}

fn packed(folder: &Path, output: &str, format: Format, images: &[&str]) -> anyhow::Result<()> {
    let at =
        |text: &&str| arguments(&text.replace("file=", &format!("file={}/", folder.display())));
    let images = images.iter().map(at).collect();
    pack(
        &Pack {
            images,
            output: folder.join(output),
            format,
            compression: None,
            legacy_kinds: false,
        },
        &session(),
    )
}

#[test]
fn pk_12_pk_14_arguments_are_joined_and_kept_in_order() {
    let image = arguments("zz=1,file=a,arch=x,file=b=c,kind=hip,,arch=y,flag");
    assert_eq!(
        (image.get("file"), image.get("flag"), image.get("no")),
        (Some(&b"a,b=c"[..]), Some(&b""[..]), None)
    );
    let strings: [(&[u8], &[u8]); 4] =
        [(b"zz", b"1"), (b"arch", b"x,y"), (b"", b""), (b"flag", b"")];
    assert_eq!(image.strings(), strings);
    assert_eq!(image.shown(), "zz=1,file=a,b=c,arch=x,y,kind=hip,,flag");
    assert_eq!(arguments("").strings(), [(&b""[..], &b""[..])]);
}

#[test]
fn pk_06_q10_kinds_by_name() {
    let kinds = ["openmp", "cuda", "hip", "sycl", "HIP", "", "none"]
        .map(|name| kind_number(name.as_bytes()));
    assert_eq!(kinds, [1, 2, 4, 8, 0, 0, 0]);
}

#[test]
fn pk_05_image_kinds_by_extension() {
    let kind = |name: &str| image_kind(Path::new(name));
    assert_eq!(kind("x.y.o"), ImageKind::Object);
    assert_eq!(
        (kind("d.o/x"), kind("x"), kind("x.O"), kind("")),
        (
            ImageKind::None,
            ImageKind::None,
            ImageKind::None,
            ImageKind::None
        )
    );
    assert_eq!(
        (kind(".bc"), kind("a.s"), kind("a.ptx")),
        (ImageKind::Bitcode, ImageKind::Ptx, ImageKind::Ptx)
    );
    assert_eq!(
        (kind("a.spv"), kind("a.cubin"), kind("a.fatbin")),
        (ImageKind::Spirv, ImageKind::Cubin, ImageKind::Fatbinary)
    );
}

#[test]
fn p8_generated_names_stay_in_the_folder() {
    let name = |input: &str, triple: &str, arch: &str| {
        generated_name(
            Path::new(input),
            triple.as_bytes(),
            arch.as_bytes(),
            1,
            ImageKind::Object,
        )
    };
    assert_eq!(
        name("/x/in.tar.bin", "nvptx64", "sm_70"),
        "in.tar-nvptx64-sm_70.1.o"
    );
    assert_eq!(name("-", "t", ""), "--t-.1.o");
    assert_eq!(
        name("a", "../../etc/x", "\\..\n\0"),
        "a-.._.._etc_x-_..__.1.o"
    );
    let bytes = generated_name(Path::new("a"), b"\xff/", b"", 0, ImageKind::None);
    assert_eq!(bytes, "a-__-.0.");
}

#[test]
fn pk_01_pk_03_pk_11_packed_is_read() -> Outcome {
    let folder = tempfile::tempdir()?;
    let path = |name: &str| folder.path().join(name);
    fs::write(path("a.o"), b"one")?;
    fs::write(path("b.bc"), vec![7; 200_000])?;
    for format in [Format::Separate, Format::Shared] {
        packed(
            folder.path(),
            "out",
            format,
            &[
                "file=a.o,triple=t,x=1,kind=hip",
                "file=b.bc,triple=u,arch=v",
            ],
        )?;
        let found = images(&path("out"), &FileSlice::open(&path("out"))?, &session())?;
        assert_eq!(found.len(), 2, "{format:?}");
        assert_eq!(
            (
                found[0].contents.bytes(),
                found[0].offload_kind,
                found[0].get(b"x")
            ),
            (&b"one"[..], 4, &b"1"[..])
        );
        assert_eq!(
            (found[1].contents.bytes(), found[1].image_kind),
            (&vec![7; 200_000][..], ImageKind::Bitcode)
        );
        assert_eq!(
            (found[1].get(b"arch"), found[1].get(b"no")),
            (&b"v"[..], &b""[..])
        );
    }
    Ok(())
}

#[test]
fn p7_p9_errors_name_what_is_missing_and_leave_nothing() -> Outcome {
    let folder = tempfile::tempdir()?;
    let error_of = |images: &[&str]| {
        packed(folder.path(), "out", Format::Separate, images)
            .err()
            .map(|error| error.to_string())
    };
    let missing = format!(
        "'{}/no.o': No such file or directory",
        folder.path().display()
    );
    assert_eq!(error_of(&["file=no.o,triple=t"]), Some(missing));
    assert_eq!(
        error_of(&["triple=t"]),
        Some("'file' is a required image arguments".into())
    );
    assert!(error_of(&[]).is_some_and(|text| text.starts_with("nothing to write to ")));
    assert_eq!(fs::read_dir(folder.path())?.count(), 0);
    Ok(())
}

#[test]
fn compressed_containers_are_read_among_others() -> Outcome {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("in.bin");
    let strings: &[(&str, &str)] = &[("triple", "amdgcn-amd-amdhsa"), ("arch", "gfx90a")];
    let plain = write_shared(3, &[(0, strings, b"one"), (0, strings, b"two")]);
    let mut data = Vec::new();
    for part in [
        compress(&plain, true)?,
        plain.clone(),
        compress(&plain, false)?,
    ] {
        data.extend(part);
        data.resize(data.len().next_multiple_of(8), 0);
    }
    fs::write(&path, &data)?;
    let found = images(&path, &FileSlice::open(&path)?, &session())?;
    let bytes: Vec<_> = found.iter().map(|image| image.contents.bytes()).collect();
    assert_eq!(bytes, [&b"one"[..], b"two", b"one", b"two", b"one", b"two"]);
    let at = compress(&plain, true)?.len() - 1;
    data[at] ^= 0x55;
    data[at - 8] ^= 0x55;
    fs::write(&path, &data)?;
    assert!(images(&path, &FileSlice::open(&path)?, &session()).is_err());
    Ok(())
}

#[test]
fn p2_the_hip_of_older_releases() -> Outcome {
    use offload_formats::offload_binary::write;
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("in.bin");
    let binary = |kind, triple| write(ImageKind::Object, kind, 0, &[("triple", triple)], b"x");
    fs::write(
        &path,
        [
            binary(3, "amdgcn-amd-amdhsa"),
            binary(3, "x86_64-pc-linux-gnu"),
            binary(4, "amdgcn-amd-amdhsa"),
        ]
        .concat(),
    )?;
    let found = images(&path, &FileSlice::open(&path)?, &session())?;
    assert_eq!(
        found
            .iter()
            .map(|image| image.offload_kind)
            .collect::<Vec<_>>(),
        [4, 3, 4]
    );
    Ok(())
}

#[test]
fn p1_damaged_files_are_errors_or_images_but_never_more() -> Outcome {
    let folder = tempfile::tempdir()?;
    let (session, path) = (session(), |name: &str| folder.path().join(name));
    fs::write(path("a.o"), b"one")?;
    packed(
        folder.path(),
        "in.bin",
        Format::Separate,
        &["file=a.o,triple=t", "file=a.o,triple=u"],
    )?;
    let whole = fs::read(path("in.bin"))?;
    let member = format!(
        "{:<16}{:<12}{:<6}{:<6}{:<8}{:<10}`\n",
        "m/",
        0,
        0,
        0,
        644,
        whole.len()
    );
    let archive = [b"!<arch>\n".to_vec(), member.into_bytes(), whole.clone()].concat();
    for (name, data) in [("in.bin", whole), ("lib.a", archive)] {
        for len in 0..data.len() {
            let cut = FileSlice::owned(data[..len].to_vec());
            let found = images(&path(name), &cut, &session).map_or(0, |found| found.len());
            assert!(found < 2, "{name}: {len}");
        }
        assert_eq!(
            images(&path(name), &FileSlice::owned(data.clone()), &session)?.len(),
            2
        );
        for at in 0..data.len() {
            let mut bad = data.clone();
            bad[at] ^= 0xff;
            let _any = images(&path(name), &FileSlice::owned(bad), &session);
        }
    }
    Ok(())
}

#[test]
fn containers_that_share_bytes_do_not_multiply() {
    // Each level has 64 entries for the level inside it.
    let mut data = write_shared(2, &[(0, &[], b"innermost")]);
    for _ in 0..6 {
        let mut many = write_shared(2, &vec![(0, &[][..], &[][..]); 64]);
        let at = many.len() as u64;
        for entry in 0..64 {
            many[32 + 40 * entry + 24..][..8].copy_from_slice(&at.to_le_bytes());
            many[32 + 40 * entry + 32..][..8].copy_from_slice(&(data.len() as u64).to_le_bytes());
        }
        many.extend(&data);
        many.resize(many.len().next_multiple_of(8), 0);
        let size = many.len() as u64;
        many[8..16].copy_from_slice(&size.to_le_bytes());
        data = many;
    }
    let found = images(Path::new("in.bin"), &FileSlice::owned(data), &session());
    assert!(found.is_err_and(|error| error.to_string().contains("more than")));
}

#[test]
fn od_07_images_embedded_in_bitcode_are_found() -> Outcome {
    let module = include_bytes!("../../../offload-formats/src/bitcode/tests/clang14-host.bc");
    let found = images(
        Path::new("host.bc"),
        &FileSlice::owned(module.to_vec()),
        &session(),
    )?;
    let triples: Vec<_> = found
        .iter()
        .map(|image| String::from_utf8_lossy(image.get(b"triple")).into_owned())
        .collect();
    assert_eq!(triples, ["x86_64-unknown-linux-gnu"]);
    assert!(found.iter().all(|image| !image.contents.bytes().is_empty()));
    Ok(())
}

#[test]
fn damaged_bitcode_is_an_error_with_its_offset() {
    let found = images(
        Path::new("in.bc"),
        &FileSlice::owned(b"BC\xc0\xde....".to_vec()),
        &session(),
    );
    assert!(
        found.is_err_and(|error| offload_formats::error::chain(&error).starts_with("in.bc+0x"))
    );
}

#[test]
fn many_images_are_extracted_in_time() -> Outcome {
    let folder = tempfile::tempdir()?;
    let strings: &[(&str, &str)] = &[("triple", "t")];
    fs::write(
        folder.path().join("in.bin"),
        write_shared(2, &vec![(0, strings, &b"x"[..]); 3000]),
    )?;
    let request = Extract {
        input: folder.path().join("in.bin"),
        images: vec![arguments(&format!(
            "triple=t,file={}",
            folder.path().join("all.a").display()
        ))],
        archive: true,
        all_must_match: true,
    };
    extract(&request, &session())?;
    let archive = fs::read(folder.path().join("all.a"))?;
    let read = object::read::archive::ArchiveFile::parse(&*archive)?;
    let names: std::collections::BTreeSet<_> = read
        .members()
        .flatten()
        .map(|member| member.name().to_vec())
        .collect();
    assert_eq!(names.len(), 3000);
    Ok(())
}
