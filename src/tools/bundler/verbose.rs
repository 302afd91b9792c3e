//! The output of `-verbose` about compression and decompression. The lines are LLVM's
//! (docs/spec/containers.md 2.15).

use std::time::Duration;

use super::Request;
use super::container::Inflated;
use crate::formats::compressed::{Header, Method};
use crate::io::file_slice::FileSlice;
use crate::sys::shell::Shell;

/// Prints statistics of a bundle with this header that was compressed at `level`.
pub(super) fn compressed(header: &Header, level: i32, time: Duration, shell: &Shell) {
    let total = header.total.unwrap_or_default();
    let packed = total.saturating_sub(header.size);
    shell.line(&format!(
        "Compressed bundle format version: {}",
        header.version
    ));
    shell.line(&format!(
        "Total file size (including headers): {} bytes",
        with_commas(total)
    ));
    shell.line(&format!("Compression method used: {}", name(header.method)));
    shell.line(&format!("Compression level: {level}"));
    shell.line(&format!(
        "Binary size before compression: {} bytes",
        with_commas(header.plain_size)
    ));
    shell.line(&format!(
        "Binary size after compression: {} bytes",
        with_commas(packed)
    ));
    ratios(packed, header.plain_size, shell);
    shell.line(&format!(
        "Compression speed: {} MB/s",
        speed(header.plain_size, time)
    ));
    shell.line(&format!("Truncated MD5 hash: {:#018x}", header.hash));
}

/// Prints statistics of each compressed bundle in a file, or a line if there are none.
pub(super) fn read(request: &Request, file: &FileSlice, compressed: &[Inflated], shell: &Shell) {
    if !request.verbose {
        return;
    }
    // LLVM prints nothing for a file that is shorter than the header of a compressed bundle.
    if compressed.is_empty() && file.size() > 20 {
        shell.line("Uncompressed bundle.");
    }
    compressed.iter().for_each(|one| decompressed(one, shell));
}

/// Prints statistics of a decompressed bundle with a verified hash.
fn decompressed(bundle: &Inflated, shell: &Shell) {
    shell.line(&format!(
        "Compressed bundle format version: {}",
        bundle.version
    ));
    if bundle.version > 1 {
        shell.line(&format!(
            "Total file size (from header): {} bytes",
            with_commas(bundle.total_size)
        ));
    }
    shell.line(&format!("Decompression method: {}", name(bundle.method)));
    shell.line(&format!(
        "Size before decompression: {} bytes",
        with_commas(bundle.packed_size)
    ));
    shell.line(&format!(
        "Size after decompression: {} bytes",
        with_commas(bundle.plain_size)
    ));
    ratios(bundle.packed_size, bundle.plain_size, shell);
    shell.line(&format!(
        "Decompression speed: {} MB/s",
        speed(bundle.plain_size, bundle.time)
    ));
    shell.line(&format!("Stored hash: {:#018x}", bundle.hash));
    shell.line(&format!("Recalculated hash: {:#018x}", bundle.hash));
    shell.line("Hashes match: Yes");
}

fn ratios(packed: u64, plain: u64, shell: &Shell) {
    let (packed, plain) = (packed as f64, plain as f64);
    shell.line(&format!("Compression rate: {:.2}", plain / packed));
    shell.line(&format!(
        "Compression ratio: {:.2}%",
        packed / plain * 100.0
    ));
}

fn speed(size: u64, time: Duration) -> String {
    format!(
        "{:.2}",
        size as f64 / f64::from(1 << 20) / time.as_secs_f64().max(1e-9)
    )
}

fn name(method: Method) -> &'static str {
    match method {
        Method::Zlib => "zlib",
        Method::Zstd => "zstd",
    }
}

/// `1234567` as `1,234,567`.
fn with_commas(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_commas() {
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1000, "1,000"),
            (15196, "15,196"),
            (1_234_567, "1,234,567"),
        ] {
            assert_eq!(with_commas(number), text);
        }
    }
}
