//! An edited bundle equals the output of LLVM's bundler or of offld's writer for the same code
//! objects.

use crate::bundle::*;
use crate::compose::join;
use crate::reference::{Outcome, run, tools};

const HOST: &str = "host-x86_64-unknown-linux-gnu-";
const IDS: [&str; 4] = [
    HOST,
    "hip-amdgcn-amd-amdhsa--gfx908",
    "hip-amdgcn-amd-amdhsa--gfx90a",
    "hip-amdgcn-amd-amdhsa--gfx942:xnack+",
];

fn object(place: usize) -> Vec<u8> {
    vec![place as u8; place * 777]
}

fn bundled(objects: &[(&str, Vec<u8>)], align: u64) -> anyhow::Result<Vec<u8>> {
    let sources = objects
        .iter()
        .map(|(id, bytes)| Source {
            id,
            size: bytes.len() as u64,
            bytes: &bytes[..],
        })
        .collect();
    let mut out = Vec::new();
    write(sources, align, &mut out)?;
    Ok(out)
}

fn of_places(places: &[usize], align: u64) -> anyhow::Result<Vec<u8>> {
    bundled(
        &places
            .iter()
            .map(|place| (IDS[*place], object(*place)))
            .collect::<Vec<_>>(),
        align,
    )
}

#[test]
fn objects_can_go_and_change_places() -> Outcome {
    for align in [1, 4, 8, 24, 64, 4096, 65536] {
        let all = of_places(&[0, 1, 2, 3], align)?;
        assert_eq!(alignment(&read_all(&all)?[0]), align);
        for places in [
            &[][..],
            &[0],
            &[0, 1],
            &[0, 3],
            &[0, 2, 3],
            &[2],
            &[0, 3, 2, 1],
            &[0, 1, 2, 3],
        ] {
            let items: Vec<_> = places.iter().map(|place| Item::Old(*place)).collect();
            let parts = compose(&all, &items)?;
            assert_eq!(
                join(&all, &parts, &[])?,
                of_places(places, align)?,
                "{places:?} at {align}"
            );
        }
    }
    Ok(())
}

#[test]
fn objects_can_be_exchanged_and_added() -> Outcome {
    let old = of_places(&[0, 1, 2], 4096)?;
    let (other, added) = (vec![7; 9000], b"added".to_vec());
    let items = [
        Item::Old(0),
        Item::New(NewObject {
            id: "hip-amdgcn-amd-amdhsa--gfx1100",
            size: 5,
        }),
        Item::Changed {
            entry: 1,
            size: 9000,
        },
        Item::Changed { entry: 2, size: 0 },
    ];
    let parts = compose(&old, &items)?;
    assert!(
        parts.contains(&Part::New(1))
            && parts.contains(&Part::New(2))
            && !parts.contains(&Part::New(3))
    );
    let objects = [
        (IDS[0], Vec::new()),
        ("hip-amdgcn-amd-amdhsa--gfx1100", added.clone()),
        (IDS[1], other.clone()),
        (IDS[2], Vec::new()),
    ];
    assert_eq!(
        join(&old, &parts, &[&added, &other])?,
        bundled(&objects, 4096)?
    );
    Ok(())
}

#[test]
fn an_unchanged_bundle_is_one_range() -> Outcome {
    // Unusual gaps stay if nothing changes.
    let mut data = of_places(&[0, 1, 2], 64)?;
    let size = data.len() as u64;
    data[200] = 1;
    data.extend([0; 100]);
    data.extend(of_places(&[3], 1)?);
    assert_eq!(
        compose(&data, &[Item::Old(0), Item::Old(1), Item::Old(2)])?,
        [Part::Old(0..size)]
    );
    Ok(())
}

#[test]
fn an_unknown_layout_keeps_its_alignment() -> Outcome {
    // The object is moved by 128 bytes, as an editor might do.
    let mut data = of_places(&[0, 1], 64)?;
    let at = read_all(&data)?[0].entries[1].at;
    data.splice(at as usize..at as usize, [0; 128]);
    let field = 32 + 24 + HOST.len();
    data[field..field + 8].copy_from_slice(&(at + 128).to_le_bytes());
    assert!(alignment(&read_all(&data)?[0]).is_multiple_of(64));
    let new = join(&data, &compose(&data, &[Item::Old(1)])?, &[])?;
    assert_eq!(read_all(&new)?[0].entries[0].object, object(1));
    Ok(())
}

#[test]
fn invalid_requests_and_bundles_are_errors() -> Outcome {
    let data = of_places(&[0, 1, 2], 1)?;
    assert_eq!(
        compose(&data, &[Item::Old(3)]),
        Err(Malformed::new("the bundle has no such code object", 0))
    );
    let huge = Item::Changed {
        entry: 1,
        size: u64::MAX,
    };
    assert_eq!(
        compose(&data, &[Item::Old(0), huge]),
        Err(Malformed::new("too large for a bundle", 0))
    );
    let many = [Item::Old(2); 50];
    assert_eq!(
        compose(&data, &many),
        Err(Malformed::new("the entries of the container overlap", 0))
    );
    for len in 0..data.len() {
        assert!(
            compose(&data[..len], &[Item::Old(0)]).is_err(),
            "cut to {len}"
        );
    }
    for at in 0..200 {
        for flip in [1, 0x80, 0xff] {
            let mut data = data.clone();
            data[at] ^= flip;
            if let Ok(parts) = compose(&data, &[Item::Old(0), Item::Old(2)]) {
                assert!(
                    join(&data, &parts, &[])?.len() <= 2 * data.len() + 2 * LARGEST_ALIGN as usize
                );
            }
        }
    }
    Ok(())
}

#[test]
fn llvms_bundler_writes_the_same_without_the_object() -> Outcome {
    let Some([bundler]) = tools(["clang-offload-bundler"]) else {
        return Ok(());
    };
    let folder = tempfile::tempdir()?;
    for place in 0..4 {
        std::fs::write(folder.path().join(format!("in{place}")), object(place))?;
    }
    let bundle = |places: &[usize], align: u64| -> Result<Vec<u8>, Box<dyn std::error::Error>> {
        let ids: Vec<&str> = places.iter().map(|place| IDS[*place]).collect();
        let mut args = vec![
            "-type=bc".to_owned(),
            format!("-bundle-align={align}"),
            format!("-targets={}", ids.join(",")),
        ];
        args.extend(places.iter().map(|place| format!("-input=in{place}")));
        args.push("-output=out".to_owned());
        run(&bundler, folder.path(), &args)?;
        Ok(std::fs::read(folder.path().join("out"))?)
    };
    for align in [1, 4096] {
        let all = bundle(&[0, 1, 2, 3], align)?;
        for places in [&[0, 1, 3][..], &[0, 2], &[0, 3, 1]] {
            let items: Vec<_> = places.iter().map(|place| Item::Old(*place)).collect();
            assert_eq!(
                join(&all, &compose(&all, &items)?, &[])?,
                bundle(places, align)?,
                "{places:?} at {align}"
            );
        }
    }
    Ok(())
}
