//! Compares edited binaries with newly written binaries that have the same images. offld's writer
//! or LLVM's packager writes the new binaries.
//!
//! The test `descriptions_and_flags_stay` compares only the entries of binaries. The edited binary
//! in this test comes from the test helper `write_shared`.

use super::*;
use crate::compose::join;
use crate::model::ImageKind;
use crate::offload_binary::samples::{compress, write_shared};
use crate::offload_binary::{Packed, pack, read_all, write};
use crate::recipe::{self, Recipe, Style};
use crate::reference::{Outcome, run, tools};
use std::io::Cursor;

type Strings = &'static [(&'static str, &'static str)];

const CPU: Strings = &[("triple", "x86_64-pc-linux-gnu"), ("arch", "")];
const GPU: Strings = &[
    ("arch", "gfx90a"),
    ("triple", "amdgcn-amd-amdhsa"),
    ("feature", "+xnack"),
];
const OTHER: Strings = &[("triple", "amdgcn-amd-amdhsa"), ("arch", "gfx1100")];

fn new_entry(strings: Strings, image_size: u64) -> Entry<'static> {
    let strings = strings
        .iter()
        .map(|(key, value)| (key.as_bytes(), value.as_bytes()))
        .collect();
    Entry {
        image_kind: ImageKind::Object,
        offload_kind: 1,
        flags: 0,
        strings,
        image_size,
    }
}

/// Returns an offload binary of version 2 or 3 that offld's writer wrote.
fn shared(version: u32, images: &[(Strings, &[u8])]) -> Vec<u8> {
    let entries: Vec<_> = images
        .iter()
        .map(|(strings, image)| new_entry(strings, image.len() as u64))
        .collect();
    let frame = if version == 2 {
        shared_frame(&entries)
    } else {
        plain_frame(&entries)
    };
    let mut all = frame.head;
    images.iter().for_each(|(_, image)| all.extend(*image));
    all.resize(frame.total_size as usize, 0);
    all
}

#[test]
fn images_go_come_and_change() -> Outcome {
    for version in [2, 3] {
        let old = shared(version, &[(CPU, b"one"), (GPU, b"two......"), (OTHER, b"")]);
        assert_eq!(read_all(&old)?.len(), 3);
        let new = |items: &[Item<Entry<'_>>], contents: &[&[u8]]| {
            join(&old, &compose(&old, items)?, contents)
        };
        assert_eq!(
            compose(&old, &[Item::Old(0), Item::Old(1), Item::Old(2)])?,
            [Part::Old(0..old.len() as u64)]
        );
        assert_eq!(
            new(&[Item::Old(1)], &[])?,
            shared(version, &[(GPU, b"two......")])
        );
        assert_eq!(
            new(&[Item::Old(2), Item::Old(0)], &[])?,
            shared(version, &[(OTHER, b""), (CPU, b"one")])
        );
        assert_eq!(new(&[], &[])?, shared(version, &[]));
        assert_eq!(read_all(&new(&[], &[])?)?, []);
        let items = [
            Item::Changed { entry: 1, size: 4 },
            Item::New(new_entry(OTHER, 5)),
            Item::Old(0),
        ];
        let expected = shared(version, &[(GPU, b"four"), (OTHER, b"five."), (CPU, b"one")]);
        assert_eq!(new(&items, &[b"four", b"five."])?, expected);
    }
    Ok(())
}

#[test]
fn version_1_has_a_binary_for_each_image() -> Outcome {
    let one = |strings: Strings, image: &[u8]| write(ImageKind::Object, 1, 0, strings, image);
    let mut old = one(GPU, b"image");
    old.extend(one(CPU, b"what follows is not looked at"));
    let new = |items: &[Item<Entry<'_>>], contents: &[&[u8]]| {
        join(&old, &compose(&old, items)?, contents)
    };
    assert_eq!(new(&[Item::Old(0)], &[])?, one(GPU, b"image"));
    assert_eq!(new(&[], &[])?, b"");
    assert_eq!(
        new(&[Item::Changed { entry: 0, size: 9 }], &[b"123456789"])?,
        one(GPU, b"123456789")
    );
    let both = new(&[Item::New(new_entry(CPU, 3)), Item::Old(0)], &[b"cpu"])?;
    assert_eq!(both, [one(CPU, b"cpu"), one(GPU, b"image")].concat());
    Ok(())
}

#[test]
fn descriptions_and_flags_stay() -> Outcome {
    // The second entry describes an image that the binary does not contain. `write_shared` writes
    // strings in a different order than offld's writer.
    let old = write_shared(2, &[(4, CPU, b"one"), (1, GPU, b""), (0, OTHER, b"three")]);
    let new = join(&old, &compose(&old, &[Item::Old(0), Item::Old(1)])?, &[])?;
    let (before, after) = (read_all(&old)?, read_all(&new)?);
    assert_eq!(after.len(), 2);
    for (one, other) in before.iter().zip(&after) {
        assert_eq!(
            (one.flags, &one.strings, &one.image),
            (other.flags, &other.strings, &other.image)
        );
    }
    assert!(after[1].is_description());
    Ok(())
}

#[test]
fn a_compressed_binary_is_composed_in_its_plain_form() -> Outcome {
    let plain = shared(3, &[(CPU, b"one"), (GPU, b"two")]);
    let packed = compress(&plain, true)?;
    let fault = compose(&packed, &[Item::Old(0)]).expect_err("compressed");
    assert_eq!(
        fault.what,
        "cannot change a compressed offload binary in place"
    );
    let mut inflated = Vec::new();
    Packed::of(&packed)?
        .expect("compressed")
        .inflate(&mut inflated)?;
    let less = join(&inflated, &compose(&inflated, &[Item::Old(1)])?, &[])?;
    assert_eq!(less, shared(3, &[(GPU, b"two")]));
    for style in [Style::Zstd, Style::ZstdLong, Style::Zlib] {
        let recipe = Recipe { style, level: 9 };
        let mut out = Cursor::new(b"before".to_vec());
        out.set_position(6);
        let packed = pack(&less[..], less.len() as u64, recipe, out)?.into_inner();
        let images = read_all(&packed[6..])?;
        assert_eq!(
            (images.len(), &*images[0].image, &*images[0].arch()),
            (1, &b"two"[..], "gfx90a")
        );
        // The header contains the offset of the compressed data.
        let part = Head::read(&packed, 6)?.packed.expect("compressed");
        let stream = &packed[6 + part.at as usize..];
        let found =
            recipe::find(|| stream, || &less[40..], less.len() as u64 - 40)?.expect("a recipe");
        assert_eq!(
            found.pack(&less[40..], less.len() as u64 - 40, Vec::new())?,
            stream
        );
    }
    let recipe = Recipe {
        style: Style::Zstd,
        level: 3,
    };
    for not in [
        &packed[..],
        &less[..less.len() - 1],
        &less[1..],
        b"",
        &write(ImageKind::Object, 1, 0, GPU, b"image"),
    ] {
        assert!(pack(not, not.len() as u64, recipe, Cursor::new(Vec::new())).is_err());
    }
    Ok(())
}

#[test]
fn invalid_requests_and_binaries_are_errors() -> Outcome {
    let old = shared(2, &[(CPU, b"one"), (GPU, &[7; 300])]);
    let fault = |items: &[Item<Entry<'_>>]| compose(&old, items).expect_err("an error").what;
    assert_eq!(
        fault(&[Item::Old(2)]),
        "the offload binary has no such image"
    );
    assert_eq!(
        fault(&[const { Item::Old(1) }; 9]),
        "the entries of the container overlap"
    );
    assert_eq!(
        fault(&[Item::Changed {
            entry: 0,
            size: u64::MAX
        }]),
        "too large for an offload binary"
    );
    let zero = Entry {
        strings: vec![(b"a\0", b"b")],
        ..new_entry(&[], 1)
    };
    assert_eq!(
        fault(&[Item::New(zero)]),
        "a string of an image contains a zero byte"
    );
    let first = write(ImageKind::Object, 1, 0, GPU, b"image");
    for data in [old, first, shared(3, &[(CPU, b"one")])] {
        for len in 0..data.len() {
            assert!(compose(&data[..len], &[]).is_err(), "cut to {len}");
        }
        for at in 0..data.len().min(400) {
            for flip in [1, 0x80, 0xff] {
                let mut bad = data.clone();
                bad[at] ^= flip;
                if let Ok(parts) = compose(&bad, &[Item::Old(0), Item::Old(0)]) {
                    assert!(join(&bad, &parts, &[])?.len() < 3000);
                }
            }
        }
    }
    Ok(())
}

#[test]
fn llvms_packager_writes_the_same_with_the_other_image() -> Outcome {
    let Some([packager]) = tools(["llvm-offload-binary"]) else {
        return Ok(());
    };
    let folder = tempfile::tempdir()?;
    let packed = |contents: &[u8]| -> Result<Vec<u8>, Box<dyn std::error::Error>> {
        std::fs::write(folder.path().join("in.o"), contents)?;
        let image =
            "--image=file=in.o,triple=amdgcn-amd-amdhsa,arch=gfx90a,kind=openmp,feature=+xnack";
        run(&packager, folder.path(), ["-o", "out", image])?;
        Ok(std::fs::read(folder.path().join("out"))?)
    };
    let (old, other) = (packed(b"a small one")?, [9; 1001]);
    let parts = compose(
        &old,
        &[Item::Changed {
            entry: 0,
            size: 1001,
        }],
    )?;
    assert_eq!(join(&old, &parts, &[&other])?, packed(&other)?);
    Ok(())
}
