//! Inserts images into a module's text or assembly. LLVM has printed zeros in their place, with a
//! length that occurs nowhere else in the module (`FIRST_MARK` and the numbers after it). A string
//! replaces them.

use anyhow::{Result, bail};

use crate::formats::bitstream::images::FIRST_MARK;
use crate::io::rope::Rope;

/// A function that encodes an image's bytes.
type Encode = fn(&[u8], &mut Vec<u8>);

/// A part of a text with images.
pub(super) enum TextPiece {
    /// This text.
    Text(String),
    /// The image with this index.
    Image(usize, Encode),
}

/// Directives for zeros in the assembly of different hosts.
const ZEROS: [&str; 3] = ["\t.zero\t", "\t.space\t", "\t.skip\t"];
/// The number of bytes per line of assembly.
const LINE: usize = 64;

/// Inserts images into the text of a module.
pub(super) fn module(text: &[u8], contents: &[Rope]) -> Result<Vec<TextPiece>> {
    fill(text, contents, |rest, mark, size| {
        let zeros = format!("[{mark} x i8] zeroinitializer");
        let (before, after) = rest.split_once(&zeros)?;
        Some(match size {
            0 => (
                format!("{before}[0 x i8] zeroinitializer"),
                None,
                after.to_owned(),
            ),
            _ => (
                format!("{before}[{size} x i8] c\""),
                Some(module_string as Encode),
                format!("\"{after}"),
            ),
        })
    })
}

/// Inserts images into assembly.
pub(super) fn assembly(text: &[u8], contents: &[Rope]) -> Result<Vec<TextPiece>> {
    fill(text, contents, |rest, mark, size| {
        let (before, after) = ZEROS
            .iter()
            .find_map(|zeros| rest.split_once(&format!("{zeros}{mark}\n")))?;
        Some((
            before.to_owned(),
            (size > 0).then_some(assembly_lines as Encode),
            after.to_owned(),
        ))
    })
}

/// Splits `text` at the positions of images, in their order, and replaces the marks by the images'
/// sizes everywhere else.
fn fill(
    text: &[u8],
    contents: &[Rope],
    cut: impl Fn(&str, u64, u64) -> Option<(String, Option<Encode>, String)>,
) -> Result<Vec<TextPiece>> {
    let mut rest = String::from_utf8_lossy(text).into_owned();
    let mut pieces = Vec::new();
    for (index, content) in contents.iter().enumerate() {
        let Some((before, encode, after)) = cut(&rest, FIRST_MARK + index as u64, content.size())
        else {
            bail!("LLVM's text has no place for an image");
        };
        pieces.push(TextPiece::Text(before));
        pieces.extend(encode.map(|encode| TextPiece::Image(index, encode)));
        rest = after;
    }
    pieces.push(TextPiece::Text(rest));
    for piece in &mut pieces {
        let TextPiece::Text(text) = piece else {
            continue;
        };
        for (index, content) in contents.iter().enumerate() {
            *text = text.replace(
                &(FIRST_MARK + index as u64).to_string(),
                &content.size().to_string(),
            );
        }
    }
    Ok(pieces)
}

/// Encodes bytes as LLVM prints strings: in hexadecimal if not printable or special in strings.
fn module_string(bytes: &[u8], to: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for byte in bytes {
        match byte {
            b'"' | b'\\' | ..0x20 | 0x7f.. => {
                to.extend([
                    b'\\',
                    DIGITS[usize::from(byte >> 4)],
                    DIGITS[usize::from(byte & 15)],
                ]);
            }
            plain => to.push(*plain),
        }
    }
}

/// Encodes bytes as `.ascii` lines, with three-digit octal numbers for bytes that are not printable
/// or special in strings.
fn assembly_lines(bytes: &[u8], to: &mut Vec<u8>) {
    for line in bytes.chunks(LINE) {
        to.extend(b"\t.ascii\t\"");
        for byte in line {
            match byte {
                b'"' | b'\\' | ..0x20 | 0x7f.. => to.extend([
                    b'\\',
                    b'0' + (byte >> 6),
                    b'0' + (byte >> 3 & 7),
                    b'0' + (byte & 7),
                ]),
                plain => to.push(*plain),
            }
        }
        to.extend(b"\"\n");
    }
}
