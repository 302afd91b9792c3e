//! Images in a printed module or in assembly. In their place LLVM has printed zeros of a length that nothing else in the module has
//! (`FIRST_MARK` and the numbers after it); a string replaces them.

use anyhow::{Result, bail};

use crate::formats::bitstream::images::FIRST_MARK;
use crate::io::rope::Rope;

/// How the bytes of an image are written.
type Encode = fn(&[u8], &mut Vec<u8>);

/// Part of a text with images in it.
pub(super) enum TextPiece {
    /// This text.
    Text(String),
    /// The image with this index.
    Image(usize, Encode),
}

/// Directives for zeros, as the assembly of different hosts has them.
const ZEROS: [&str; 3] = ["\t.zero\t", "\t.space\t", "\t.skip\t"];
/// How many bytes are in a line of assembly.
const LINE: usize = 64;

/// A printed module with its images.
pub(super) fn module(text: &[u8], contents: &[Rope]) -> Result<Vec<TextPiece>> {
    fill(text, contents, |rest, mark, size| {
        let zeros = format!("[{mark} x i8] zeroinitializer");
        let (before, after) = rest.split_once(&zeros)?;
        Some(match size {
            0 => (format!("{before}[0 x i8] zeroinitializer"), None, after.to_owned()),
            _ => (format!("{before}[{size} x i8] c\""), Some(module_string as Encode), format!("\"{after}")),
        })
    })
}

/// Assembly with its images.
pub(super) fn assembly(text: &[u8], contents: &[Rope]) -> Result<Vec<TextPiece>> {
    fill(text, contents, |rest, mark, size| {
        let (before, after) = ZEROS.iter().find_map(|zeros| rest.split_once(&format!("{zeros}{mark}\n")))?;
        Some((before.to_owned(), (size > 0).then_some(assembly_lines as Encode), after.to_owned()))
    })
}

/// Cuts `text` where images belong, in their order, and replaces the marks by the images' lengths everywhere else.
fn fill(
    text: &[u8],
    contents: &[Rope],
    cut: impl Fn(&str, u64, u64) -> Option<(String, Option<Encode>, String)>,
) -> Result<Vec<TextPiece>> {
    let mut rest = String::from_utf8_lossy(text).into_owned();
    let mut pieces = Vec::new();
    for (index, content) in contents.iter().enumerate() {
        let Some((before, encode, after)) = cut(&rest, FIRST_MARK + index as u64, content.size()) else {
            bail!("LLVM's text has no place for an image");
        };
        pieces.push(TextPiece::Text(before));
        pieces.extend(encode.map(|encode| TextPiece::Image(index, encode)));
        rest = after;
    }
    pieces.push(TextPiece::Text(rest));
    for piece in &mut pieces {
        let TextPiece::Text(text) = piece else { continue };
        for (index, content) in contents.iter().enumerate() {
            *text = text.replace(&(FIRST_MARK + index as u64).to_string(), &content.size().to_string());
        }
    }
    Ok(pieces)
}

/// Strings as LLVM prints them: what is not printable, and what would end the string, is in hexadecimal.
fn module_string(bytes: &[u8], to: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for byte in bytes {
        match byte {
            b'"' | b'\\' | ..0x20 | 0x7f.. => {
                to.extend([b'\\', DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
            }
            plain => to.push(*plain),
        }
    }
}

/// Lines of `.ascii`, with what is not printable as octal numbers of three digits.
fn assembly_lines(bytes: &[u8], to: &mut Vec<u8>) {
    for line in bytes.chunks(LINE) {
        to.extend(b"\t.ascii\t\"");
        for byte in line {
            match byte {
                b'"' | b'\\' | ..0x20 | 0x7f.. => {
                    to.extend([b'\\', b'0' + (byte >> 6), b'0' + (byte >> 3 & 7), b'0' + (byte & 7)])
                }
                plain => to.push(*plain),
            }
        }
        to.extend(b"\"\n");
    }
}
