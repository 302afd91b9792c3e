//! An edited text bundle equals the output of a writer for the same objects, with any line ends.

use crate::bundle::text::*;
use crate::compose::join;
use crate::reference::{Outcome, run, tools};
use proptest::prelude::*;

const IDS: [&str; 3] = [
    "host-x86_64-unknown-linux-gnu-",
    "hip-amdgcn-amd-amdhsa--gfx906",
    "hip-amdgcn-amd-amdhsa--gfx90a",
];

fn object(id: &str, text: &str) -> String {
    format!("{}{text}{}", start_marker("//", id), end_marker("//", id))
}

#[test]
fn objects_go_come_and_change() -> Outcome {
    for crlf in [false, true] {
        let ended = |text: String| {
            if crlf {
                text.replace('\n', "\r\n")
            } else {
                text
            }
        };
        for texts in [["A\n", "", "B"], ["", "x\n\ny\n", ""]] {
            let of = |place: usize| object(IDS[place], texts[place]);
            let old = ended(format!("first line\n{}{}{}", of(0), of(1), of(2)));
            let new = |items: &[Item<NewObject<'_>>],
                       contents: &[&[u8]]|
             -> Result<String, Box<dyn std::error::Error>> {
                let parts = compose("//", old.as_bytes(), items)?;
                Ok(String::from_utf8(join(old.as_bytes(), &parts, contents)?)?)
            };
            assert_eq!(new(&[Item::Old(0), Item::Old(1), Item::Old(2)], &[])?, old);
            assert_eq!(
                new(&[Item::Old(0), Item::Old(2)], &[])?,
                ended(format!("first line\n{}{}", of(0), of(2)))
            );
            assert_eq!(
                new(&[Item::Old(1)], &[])?,
                ended(format!("first line\n{}", of(1)))
            );
            assert_eq!(new(&[], &[])?, ended("first line\n".to_owned()));
            let items = [
                Item::Changed { entry: 1, size: 3 },
                Item::New(NewObject {
                    id: "hip-x",
                    size: 4,
                }),
                Item::Old(0),
            ];
            let expected = format!(
                "first line\n{}{}{}",
                object(IDS[1], "new"),
                object("hip-x", "come"),
                of(0)
            );
            assert_eq!(new(&items, &[b"new", b"come"])?, ended(expected));
        }
    }
    Ok(())
}

#[test]
fn markers_that_share_line_ends_are_kept_apart() -> Outcome {
    // A marker at the start of the file, and no empty line anywhere.
    let line = |which: &str, id: &str| format!("{}{id}\n", marker("//", which));
    let one = |id: &str, text: &str| format!("{}{text}{}", line("START", id), line("END", id));
    let old = one("a", "") + &one("b", "text\n") + &one("c", "");
    let parts = compose("//", old.as_bytes(), &[Item::Old(0), Item::Old(2)])?;
    assert_eq!(
        String::from_utf8(join(old.as_bytes(), &parts, &[])?)?,
        one("a", "") + &one("c", "")
    );
    Ok(())
}

#[test]
fn llvms_bundler_writes_the_same_without_the_object() -> Outcome {
    let Some([bundler]) = tools(["clang-offload-bundler"]) else {
        return Ok(());
    };
    let folder = tempfile::tempdir()?;
    for (place, text) in ["int a;\n", "device one", "device two\n"]
        .iter()
        .enumerate()
    {
        std::fs::write(folder.path().join(format!("in{place}")), text)?;
    }
    let bundle = |places: &[usize]| -> Result<Vec<u8>, Box<dyn std::error::Error>> {
        let ids: Vec<&str> = places.iter().map(|place| IDS[*place]).collect();
        let mut args = vec![
            "-type=ii".to_owned(),
            format!("-targets={}", ids.join(",")),
            "-output=out".to_owned(),
        ];
        args.extend(places.iter().map(|place| format!("-input=in{place}")));
        run(&bundler, folder.path(), &args)?;
        Ok(std::fs::read(folder.path().join("out"))?)
    };
    let all = bundle(&[0, 1, 2])?;
    for places in [&[0, 1][..], &[0, 2], &[0]] {
        let items: Vec<_> = places.iter().map(|place| Item::Old(*place)).collect();
        assert_eq!(
            join(&all, &compose("//", &all, &items)?, &[])?,
            bundle(places)?,
            "{places:?}"
        );
    }
    Ok(())
}

proptest! {
    #[test]
    fn kept_objects_are_read_again(
        lines in proptest::collection::vec((0..6usize, "[ab\r]{0,3}", any::<bool>()), 0..14),
        fates in proptest::collection::vec(0..4u8, 14),
    ) {
        let mut data = String::new();
        for (what, text, crlf) in lines {
            let line = match what {
                0 | 1 => format!("{}{text}", marker("//", "START")),
                2 | 3 => format!("{}{text}", marker("//", "END")),
                _ => text,
            };
            data += &format!("{line}{}", if crlf { "\r\n" } else { "\n" });
        }
        let data = data.as_bytes();
        let contents = |data: &[u8]| -> std::io::Result<Vec<(String, Vec<u8>)>> {
            let of = |span: Span| (span.id, data[span.start as usize..(span.start + span.size) as usize].to_vec());
            Ok(scan("//", data)?.into_iter().map(of).collect())
        };
        if let Ok(old) = contents(data) {
            let kept: Vec<usize> = (0..old.len()).filter(|place| fates[*place] > 0).collect();
            let item = |place: &usize| match fates[*place] {
                1 => Item::Changed { entry: *place, size: 3 },
                _ => Item::Old(*place),
            };
            let items: Vec<_> = kept.iter().map(item).collect();
            let parts = match compose("//", data, &items) {
                Err(fault) if fault.what.contains("names another code object") => return Ok(()),
                parts => parts?,
            };
            let new = join(data, &parts, &vec![&b"NEW"[..]; items.len()])?;
            let text = |place: &usize| if fates[*place] == 1 { b"NEW".to_vec() } else { old[*place].1.clone() };
            let expected: Vec<_> = kept.iter().map(|place| (old[*place].0.clone(), text(place))).collect();
            prop_assert_eq!(contents(&new)?, expected, "{:?}", String::from_utf8_lossy(data));
        } else {
            prop_assert!(compose("//", data, &[]).is_err());
        }
    }
}
