//! Round trips with buffers of any size, LLVM's layout, and errors for missing ends.

mod compose;

use super::*;
use proptest::prelude::*;
use std::io::BufReader;

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
