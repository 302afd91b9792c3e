//! Round trips with buffers of any size, LLVM's layout, and errors for missing ends. An edited text
//! bundle equals the output of a writer for the same objects, with any line ends.

use std::io::BufReader;

use proptest::prelude::*;

use super::*;
use crate::compose::join;
use crate::reference::{Outcome, run, tools};

const HOST: &str = "host-x86_64-unknown-linux-gnu-";
const GPU: &str = "hip-amdgcn-amd-amdhsa--gfx906";

fn written(comment: &str, objects: &[(&str, &str)]) -> String {
    objects
        .iter()
        .map(|(id, text)| {
            format!(
                "{}{text}{}",
                start_marker(comment, id),
                end_marker(comment, id)
            )
        })
        .collect()
}

/// IDs and contents, read through a buffer of `buffer` bytes.
fn read_by(comment: &str, data: &[u8], buffer: usize) -> Result<Vec<(String, String)>, Malformed> {
    let spans = scan(comment, BufReader::with_capacity(buffer, data))
        .map_err(|error| Malformed::of(&error).expect("a fault"))?;
    let text = |span: &Span| {
        String::from_utf8_lossy(&data[span.start as usize..(span.start + span.size) as usize])
            .into_owned()
    };
    Ok(spans
        .into_iter()
        .map(|span| (span.id.clone(), text(&span)))
        .collect())
}

fn read(comment: &str, text: &str) -> Result<Vec<(String, String)>, Malformed> {
    read_by(comment, text.as_bytes(), 4096)
}

fn owned(objects: &[(&str, &str)]) -> Vec<(String, String)> {
    objects
        .iter()
        .map(|(id, text)| ((*id).to_owned(), (*text).to_owned()))
        .collect()
}

#[test]
fn ob_17_ob_18_ob_19_ob_20_ob_21_the_layout() {
    let text = written("//", &[(HOST, "A\n"), (GPU, ""), (GPU, "B")]);
    let expected = "\n// __CLANG_OFFLOAD_BUNDLE____START__ host-x86_64-unknown-linux-gnu-\nA\n\n\
                    // __CLANG_OFFLOAD_BUNDLE____END__ host-x86_64-unknown-linux-gnu-\n\
                    \n// __CLANG_OFFLOAD_BUNDLE____START__ hip-amdgcn-amd-amdhsa--gfx906\n\n\
                    // __CLANG_OFFLOAD_BUNDLE____END__ hip-amdgcn-amd-amdhsa--gfx906\n\
                    \n// __CLANG_OFFLOAD_BUNDLE____START__ hip-amdgcn-amd-amdhsa--gfx906\nB\n\
                    // __CLANG_OFFLOAD_BUNDLE____END__ hip-amdgcn-amd-amdhsa--gfx906\n";
    assert_eq!(text, expected);
    let objects = owned(&[(HOST, "A\n"), (GPU, ""), (GPU, "B")]);
    assert_eq!(read("//", &text), Ok(objects.clone()));
    for buffer in 1..70 {
        assert_eq!(
            read_by("//", text.as_bytes(), buffer),
            Ok(objects.clone()),
            "buffer of {buffer}"
        );
    }
    // Each file type has its own comment prefix.
    assert_eq!(read("#", &text), Ok(Vec::new()));
    assert_eq!(
        read(";", &written(";", &[(GPU, "x")])),
        Ok(owned(&[(GPU, "x")]))
    );
}

#[test]
fn b7_b8_what_has_no_end_is_an_error() {
    let text = written("#", &[(HOST, "host\n"), (GPU, "device\n")]);
    let second = text
        .rfind("# __CLANG_OFFLOAD_BUNDLE____START__")
        .expect("a marker");
    let end = text
        .rfind("# __CLANG_OFFLOAD_BUNDLE____END__")
        .expect("a marker")
        + "# __CLANG_OFFLOAD_BUNDLE____END__ ".len();
    let start = second + "# __CLANG_OFFLOAD_BUNDLE____START__ ".len();
    for len in start..end {
        let fault = read("#", &text[..len]).expect_err("a bundle cut short");
        assert_eq!(fault.at, second as u64, "cut to {len}: {fault}");
    }
    assert_eq!(read("#", &text[..end]).map(|all| all.len()), Ok(2));
    assert_eq!(read("#", "no bundle at all"), Ok(Vec::new()));
}

#[test]
fn b23_line_ends_and_the_start_of_the_file() {
    let text = written("//", &[(HOST, "one\ntwo\n"), (GPU, "")]);
    assert_eq!(
        read("//", text.trim_start()),
        Ok(owned(&[(HOST, "one\ntwo\n"), (GPU, "")]))
    );
    let dos = text.replace('\n', "\r\n");
    assert_eq!(
        read("//", &dos),
        Ok(owned(&[(HOST, "one\r\ntwo\r\n"), (GPU, "")]))
    );
    // A CR at the end of the code object belongs to it.
    let own = written("//", &[(GPU, "one\r")]);
    assert_eq!(read("//", &own), Ok(owned(&[(GPU, "one\r")])));
    // Nothing between the markers.
    let none = written("//", &[(GPU, "")]).replace("\n\n", "\n");
    assert_eq!(read("//", &none), Ok(owned(&[(GPU, "")])));
}

#[test]
fn a_code_object_may_be_a_bundle() {
    let inner = written("//", &[(HOST, "h"), (GPU, "g")]);
    let text = written(
        "//",
        &[("hip-amdgcn-amd-amdhsa--gfx90a", &inner), (HOST, "x")],
    );
    assert_eq!(
        read("//", &text),
        Ok(owned(&[
            ("hip-amdgcn-amd-amdhsa--gfx90a", &inner),
            (HOST, "x")
        ]))
    );
    // LLVM does not compare the IDs of end markers. If the ID does not match, an end marker closes
    // the innermost object.
    let other = text.replace("END__ host", "END__ other");
    assert_eq!(read("//", &other).map(|all| all.len()), Ok(2));
}

#[test]
fn long_lines_are_skipped() {
    let long = "x".repeat(3 * LONGEST_LINE as usize);
    for end in ["\n", "\r\n", ""] {
        let text = format!("{long}{end}");
        let bundle = written("//", &[(GPU, &text), (HOST, &long)]);
        assert_eq!(
            read("//", &bundle),
            Ok(owned(&[(GPU, &text), (HOST, &long)]))
        );
    }
}

proptest! {
    #[test]
    fn round_trip(objects in prop::collection::vec(("[a-z0-9:+-]{1,20}", "[a-z/#\r\n _]{0,60}"), 0..5), buffer in 1usize..100) {
        let given: Vec<(&str, &str)> = objects.iter().map(|(id, text)| (id.as_str(), text.as_str())).collect();
        let text = written("#", &given);
        prop_assert_eq!(read_by("#", text.as_bytes(), buffer), Ok(objects));
    }

    #[test]
    fn random_input_does_not_panic(data in prop::collection::vec(prop::sample::select(vec!["\n", "\r", "# ", "__CLANG_OFFLOAD_BUNDLE____START__ ", "__CLANG_OFFLOAD_BUNDLE____END__ ", "a", "b"]), 0..60)) {
        let data = data.concat();
        let _ = read("#", &data);
    }
}

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
