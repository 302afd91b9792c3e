//! The damaged files: a description of each, and the expected result of every tool that reads its
//! format.

use libtest_mimic::Failed;

use super::Reader::{Extract, Inspect, Link, List, Unbundle, Wrap};
use super::Verdict::{Bad, Endless, Good};
use super::samples::{Samples, find, put, put64, section};
use super::{Reader, Verdict};

/// A damaged file.
pub(super) struct Row {
    /// The test's name: the LLVM defects that such files trigger, and the damage.
    pub name: &'static str,
    /// The name of the file.
    pub file: &'static str,
    /// Damages an intact file.
    pub make: fn(&Samples) -> Result<Vec<u8>, Failed>,
    /// The expected result of each tool.
    pub verdicts: &'static [(Reader, Verdict)],
}

/// The offsets of the first two entries of the sample bundle. The first ID is
/// `host-x86_64-unknown-linux-gnu-`, with 30 bytes.
const FIRST: usize = 32;
const SECOND: usize = FIRST + 24 + 30;
/// Offsets of fields in a bundle's entry.
const OFFSET: usize = 0;
const SIZE: usize = 8;
const ID_LEN: usize = 16;
/// Offsets of fields in an OffloadBinary with one entry.
const BINARY_SIZE: usize = 8;
const ENTRY_OFFSET: usize = 16;
const STRING_OFFSET: usize = 40;
const STRING_COUNT: usize = 48;
const IMAGE_OFFSET: usize = 56;
const IMAGE_SIZE: usize = 64;
const FIRST_KEY: usize = 72;

/// The same result from every tool that reads binary bundles.
const fn bundle(words: &'static str) -> [(Reader, Verdict); 4] {
    [
        (List("bc"), Bad(words)),
        (Unbundle("bc"), Bad(words)),
        (Unbundle("o"), Bad(words)),
        (Inspect, Bad(words)),
    ]
}

/// The same result from every tool that reads OffloadBinaries.
const fn binary(words: &'static str) -> [(Reader, Verdict); 4] {
    [
        (Extract, Bad(words)),
        (Wrap("openmp"), Bad(words)),
        (Inspect, Bad(words)),
        (Link, Bad(words)),
    ]
}

#[rustfmt::skip]
pub(super) const ROWS: &[Row] = &[
    // ---- bundles
    // -------------------------------------------------------------------------------------------------------------
    Row { name: "b6_a_count_of_entries_that_lies", file: "x.bc", make: |s| Ok(put64(&s.bundle, 24, 1 << 60)), verdicts: &bundle("past the end") },
    Row { name: "b6_a_later_entry_past_the_end", file: "x.bc", make: |s| Ok(put64(&s.bundle, SECOND + SIZE, 1 << 40)), verdicts: &bundle("code object past the end") },
    Row { name: "b6_a_first_entry_past_the_end", file: "x.bc", make: |s| Ok(put64(&s.bundle, FIRST + OFFSET, 1 << 40)), verdicts: &bundle("code object past the end") },
    Row { name: "b6_an_id_as_long_as_numbers_get", file: "x.bc", make: |s| Ok(put64(&s.bundle, SECOND + ID_LEN, u64::MAX)), verdicts: &bundle("id past the end") },
    Row { name: "b6_an_end_that_wraps_around", file: "x.bc", make: |s| Ok(put64(&s.bundle, FIRST + OFFSET, u64::MAX - 1)), verdicts: &bundle("code object past the end") },
    Row { name: "b6_an_object_inside_the_header", file: "x.bc", make: |s| Ok(put64(&s.bundle, SECOND + OFFSET, 8)), verdicts: &bundle("inside the header") },
    Row { name: "b8_a_header_that_is_cut", file: "x.bc", make: |s| Ok(s.bundle[..SECOND + 5].to_vec()), verdicts: &bundle("past the end") },
    Row { name: "b8_an_object_that_is_cut", file: "x.bc", make: |s| Ok(s.bundle[..s.bundle.len() - 1].to_vec()), verdicts: &bundle("code object past the end") },
    Row { name: "b8_a_magic_alone", file: "x.bc", make: |s| Ok(s.bundle[..24].to_vec()), verdicts: &bundle("past the end") },
    Row { name: "b9_junk_between_two_bundles", file: "x.bc", make: |s| Ok([&s.bundle[..], b"\0\0junk", &s.bundle].concat()), verdicts: &[(List("bc"), Good("bytes after the last bundle")), (Inspect, Bad("not a container"))] },
    Row { name: "b9_zeros_between_two_bundles", file: "x.bc", make: |s| Ok([&s.bundle[..], &[0; 99], &s.bundle].concat()), verdicts: &[(List("bc"), Good("gfx9-4-generic")), (Inspect, Good("gfx9-4-generic"))] },
    Row { name: "b7_b8_a_text_bundle_without_an_end", file: "x.ii", make: |s| Ok(s.text[..find(&s.text, b"____END__")?].to_vec()), verdicts: &[(List("ii"), Bad("")), (Unbundle("ii"), Bad("")), (Inspect, Bad(""))] },
    Row { name: "b23_a_text_bundle_from_windows", file: "x.ii", make: |s| Ok(String::from_utf8_lossy(&s.text).trim_start().replace('\n', "\r\n").into_bytes()), verdicts: &[(List("ii"), Good("gfx9-4-generic")), (Unbundle("ii"), Good("")), (Inspect, Good("gfx9-4-generic"))] },

    // ---- compressed bundles
    // --------------------------------------------------------------------------------------------------
    Row { name: "b12_a_plain_size_of_a_tebibyte", file: "x.bc", make: |s| Ok(put64(&s.ccob, 16, 1 << 40)), verdicts: &bundle("more than the compressed data can hold") },
    Row { name: "b12_a_plain_size_as_large_as_numbers_get", file: "x.bc", make: |s| Ok(put64(&s.ccob, 16, u64::MAX)), verdicts: &bundle("more than the compressed data can hold") },
    Row { name: "b12_a_plain_size_too_small", file: "x.bc", make: |s| Ok(put64(&s.ccob, 16, 100)), verdicts: &[(Unbundle("bc"), Bad("more data than the header states")), (Inspect, Bad("more data than the header states"))] },
    Row { name: "b12_a_plain_size_too_large", file: "x.bc", make: |s| Ok(put64(&s.ccob, 16, 4096)), verdicts: &[(Unbundle("bc"), Bad("less data than the header states")), (Inspect, Bad("less data than the header states"))] },
    Row { name: "b11_a_hash_that_does_not_match", file: "x.bc", make: |s| Ok(put(&s.ccob, 24, &[!s.ccob[24]])), verdicts: &[(Unbundle("bc"), Bad("does not match its hash")), (Inspect, Bad("does not match its hash"))] },
    Row { name: "b11_a_hash_that_does_not_match_in_version_2", file: "x.bc", make: |s| Ok(put(&s.ccob2, 16, &[!s.ccob2[16]])), verdicts: &[(Unbundle("bc"), Bad("does not match its hash")), (Inspect, Bad("does not match its hash"))] },
    Row { name: "b8_compressed_data_that_is_cut", file: "x.bc", make: |s| Ok(s.ccob[..s.ccob.len() - 3].to_vec()), verdicts: &bundle("size field past the end") },
    Row { name: "b8_a_compressed_header_that_is_cut", file: "x.bc", make: |s| Ok(s.ccob[..20].to_vec()), verdicts: &bundle("") },
    Row { name: "b8_compressed_data_that_is_damaged", file: "x.bc", make: |s| Ok(put(&s.ccob, 40, &[0xff; 16])), verdicts: &bundle("cannot decompress") },
    Row { name: "b9_a_size_less_than_the_header", file: "x.bc", make: |s| Ok(put64(&s.ccob, 8, 9)), verdicts: &bundle("size field too small") },
    Row { name: "b9_junk_between_compressed_bundles", file: "x.bc", make: |s| Ok([&s.ccob[..], b"junk", &s.ccob].concat()), verdicts: &[(Unbundle("bc"), Good("bytes after the last bundle")), (Inspect, Bad("not a container"))] },
    Row { name: "b9_zeros_between_compressed_bundles", file: "x.bc", make: |s| Ok([&s.ccob[..], &[0; 99], &s.ccob2].concat()), verdicts: &[(List("bc"), Good("gfx9-4-generic")), (Unbundle("bc"), Good("")), (Inspect, Good("gfx9-4-generic"))] },
    Row { name: "b11_an_unknown_method", file: "x.bc", make: |s| Ok(put(&s.ccob, 6, &[7])), verdicts: &bundle("compress") },
    Row { name: "b11_an_unknown_version", file: "x.bc", make: |s| Ok(put(&s.ccob, 4, &[9])), verdicts: &bundle("") },

    // ---- bundles in objects and archives
    // -------------------------------------------------------------------------------------
    Row { name: "b10_b9_damage_in_the_second_bundle_of_a_program", file: "x.o", make: |s| { let second = find(&s.hip, b"CCOB")? + 4; let second = second + find(&s.hip[second..], b"CCOB")?; Ok(put64(&s.hip, second + 16, 1 << 40)) }, verdicts: &[(List("o"), Bad("more than the compressed data can hold")), (Unbundle("o"), Bad("more than the compressed data can hold")), (Inspect, Bad("more than the compressed data can hold"))] },
    Row { name: "b10_a_program_section_past_the_end", file: "x.o", make: |s| Ok(put64(&s.hip, section(&s.hip, ".hip_fatbin")? + 32, 1 << 40)), verdicts: &[(List("o"), Bad("")), (Unbundle("o"), Bad("")), (Inspect, Bad(""))] },
    Row { name: "b16_b19_a_section_with_a_bundle_past_the_end", file: "x.o", make: |s| Ok(put64(&s.bundled, section(&s.bundled, "__CLANG_OFFLOAD_BUNDLE__hip-amdgcn-amd-amdhsa--gfx906:xnack+")? + 24, u64::MAX - 2)), verdicts: &[(List("o"), Bad("")), (Unbundle("o"), Bad("")), (Inspect, Bad(""))] },
    Row { name: "b22_a_damaged_member_that_is_compressed", file: "x.a", make: |s| Ok(put64(&s.archive, find(&s.archive, b"CCOB")? + 16, 1 << 40)), verdicts: &[(Unbundle("a"), Bad("more than the compressed data can hold")), (Inspect, Bad("more than the compressed data can hold"))] },
    Row { name: "b22_a_damaged_member_that_is_not", file: "x.a", make: |s| Ok(put64(&s.archive, find(&s.archive, b"__CLANG_OFFLOAD_BUNDLE__")? + 24, 1 << 60)), verdicts: &[(Unbundle("a"), Bad("past the end")), (Inspect, Bad("past the end"))] },
    Row { name: "b22_a_member_past_the_end", file: "x.a", make: |s| Ok(s.archive[..s.archive.len() - 200].to_vec()), verdicts: &[(Unbundle("a"), Bad("")), (Inspect, Bad(""))] },

    Row { name: "b22_a_member_size_that_lies", file: "x.a", make: |s| Ok(put(&s.archive, find(&s.archive, b"`\n__CLANG_OFFLOAD_BUNDLE__")? - 10, b"9999999999")), verdicts: &[(Unbundle("a"), Bad("")), (Inspect, Bad("")), (Extract, Bad("")), (Link, Bad(""))] },

    // ---- offload binaries
    // ----------------------------------------------------------------------------------------------------
    Row { name: "p1_an_image_past_the_end", file: "x.bin", make: |s| Ok(put64(&s.packed, IMAGE_SIZE, 1 << 40)), verdicts: &binary("image size past the end") },
    Row { name: "p1_an_image_whose_end_wraps_around", file: "x.bin", make: |s| Ok(put64(&s.packed, IMAGE_SIZE, u64::MAX - 8)), verdicts: &binary("image size past the end") },
    Row { name: "p1_an_image_that_starts_past_the_end", file: "x.bin", make: |s| Ok(put64(&s.packed, IMAGE_OFFSET, 1 << 40)), verdicts: &binary("image offset past the end") },
    Row { name: "p1_a_number_of_strings_that_lies", file: "x.bin", make: |s| Ok(put64(&s.packed, STRING_COUNT, 1 << 58)), verdicts: &binary("number of strings past the end") },
    Row { name: "p1_a_number_of_strings_that_wraps_around", file: "x.bin", make: |s| Ok(put64(&s.packed, STRING_COUNT, 1 << 60)), verdicts: &binary("number of strings past the end") },
    Row { name: "p1_strings_past_the_end", file: "x.bin", make: |s| Ok(put64(&s.packed, STRING_OFFSET, 1 << 40)), verdicts: &binary("string table past the end") },
    Row { name: "p1_a_key_past_the_end", file: "x.bin", make: |s| Ok(put64(&s.packed, FIRST_KEY, 1 << 40)), verdicts: &binary("string past the end") },
    Row { name: "p1_a_string_without_its_zero", file: "x.bin", make: |s| { let whole = put64(&s.packed, FIRST_KEY, s.packed.len() as u64 - 1); Ok(put(&whole, s.packed.len() - 1, b"x")) }, verdicts: &binary("without a terminating zero") },
    Row { name: "p1_an_entry_past_the_end", file: "x.bin", make: |s| Ok(put64(&s.packed, ENTRY_OFFSET, 1 << 40)), verdicts: &binary("entry past the end") },
    Row { name: "p1_w2_a_size_past_the_end", file: "x.bin", make: |s| Ok(put64(&s.packed, BINARY_SIZE, 1 << 63)), verdicts: &binary("size field past the end") },
    Row { name: "p1_w2_a_header_that_is_cut", file: "x.bin", make: |s| Ok(s.packed[..30].to_vec()), verdicts: &binary("past the end") },
    Row { name: "p1_w2_a_magic_alone", file: "x.bin", make: |s| Ok(s.packed[..4].to_vec()), verdicts: &binary("past the end") },
    Row { name: "p1_w2_an_entry_that_is_cut", file: "x.bin", make: |s| Ok(s.packed[..70].to_vec()), verdicts: &binary("past the end") },
    Row { name: "p1_a_version_of_the_future", file: "x.bin", make: |s| Ok(put(&s.packed, 4, &[9])), verdicts: &binary("unsupported offload binary version") },
    Row { name: "p6_junk_after_a_binary", file: "x.bin", make: |s| Ok([&s.packed[..], b"junk"].concat()), verdicts: &[(Extract, Bad("not an offload binary")), (Wrap("openmp"), Bad("not an offload binary")), (Link, Bad("not an offload binary")), (Inspect, Bad("not a container"))] },
    Row { name: "p6_a_few_zeros_after_a_binary", file: "x.bin", make: |s| Ok([&s.packed[..], &[0; 13]].concat()), verdicts: &[(Extract, Good("")), (Wrap("openmp"), Good("")), (Inspect, Good("gfx906"))] },
    Row { name: "p1_images_that_hold_each_other", file: "x.bin", make: |_| Ok(nested(14, 4)), verdicts: &[(Extract, Endless), (Inspect, Endless), (Link, Endless)] },
    Row { name: "p1_archives_that_name_themselves", file: "x.a", make: |_| Ok(thin_of_itself("x.a")), verdicts: &[(Extract, Endless), (Inspect, Endless), (Link, Endless)] },
    Row { name: "p1_an_inflated_size_that_lies", file: "x.bin", make: |s| { let long = [&s.packed[..32], &(1u64 << 50).to_le_bytes(), &s.packed[32..]].concat(); let long = put(&put64(&put64(&long, BINARY_SIZE, s.packed.len() as u64 + 8), ENTRY_OFFSET, 40), 4, &[3]); Ok(long) }, verdicts: &binary("more than the compressed data can hold") },

    // ---- objects and archives with device code
    // --------------------------------------------------------------------------------
    Row { name: "p1_a_binary_in_an_object", file: "x.o", make: |s| Ok(put64(&s.fat, find(&s.fat, b"\x10\xff\x10\xad")? + IMAGE_SIZE, 1 << 40)), verdicts: &[(Extract, Bad("image size past the end")), (Inspect, Bad("image size past the end")), (Link, Bad("image size past the end"))] },
    Row { name: "p1_a_binary_in_an_object_for_windows", file: "x.obj", make: |s| Ok(put64(&s.coff, find(&s.coff, b"\x10\xff\x10\xad")? + IMAGE_SIZE, 1 << 40)), verdicts: &[(Extract, Bad("image size past the end")), (Inspect, Bad("image size past the end"))] },
    Row { name: "p1_a_section_past_the_end", file: "x.o", make: |s| Ok(put64(&s.fat, section(&s.fat, ".llvm.offloading")? + 32, 1 << 40)), verdicts: &[(Extract, Bad("")), (Inspect, Bad(""))] },
    Row { name: "p1_a_number_of_sections_that_lies", file: "x.o", make: |s| Ok(put(&s.fat, 60, &[0xff, 0xfe])), verdicts: &[(Extract, Bad("")), (Inspect, Bad(""))] },
];

/// An OffloadBinary of version 2 with `each` images, all of which are such a binary again, `depth`
/// levels deep. Fully expanded, it has `each` to the power of `depth` images.
fn nested(depth: u32, each: u64) -> Vec<u8> {
    let inner = if depth == 0 {
        b"IMAGE".to_vec()
    } else {
        nested(depth - 1, each)
    };
    let image_at = 32 + 40 * each;
    let size = (image_at + inner.len() as u64).next_multiple_of(8);
    let mut binary = b"\x10\xff\x10\xad\x02\0\0\0".to_vec();
    [size, 32, each]
        .iter()
        .for_each(|field| binary.extend(field.to_le_bytes()));
    for _ in 0..each {
        [1 | 1 << 16, image_at, 0, image_at, inner.len() as u64]
            .iter()
            .for_each(|field| binary.extend(field.to_le_bytes()));
    }
    binary.extend(inner);
    binary.resize(size as usize, 0);
    binary
}

/// A thin archive whose two members are the archive itself, so each level doubles the members.
fn thin_of_itself(file: &str) -> Vec<u8> {
    let names = format!("{file}/\n");
    let names = format!("{names:\n<0$}", names.len().next_multiple_of(2));
    let header = |name: &str, size: usize| {
        format!("{name:<16}{:<12}{:<6}{:<6}{:<8}{size:<10}`\n", 0, 0, 0, 644)
    };
    [
        "!<thin>\n".to_owned(),
        header("//", names.len()),
        names,
        header("/0", 300),
        header("/0", 300),
    ]
    .concat()
    .into_bytes()
}
