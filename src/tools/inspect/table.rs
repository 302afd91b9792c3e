//! The report as text for people: a table of the images of each file, the kernels below, and what the file registers with.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::contents::report::{Entries, FileReport, Image, Linker, Registration, Report, Step, UNREADABLE};
use crate::formats::kernels::Kernel;
use crate::model::printable;
use crate::sys::table::{Style, columns, size};

/// One line for each kind and target of device code in all files: how many images, in how many files, and their size.
pub(crate) fn summary(report: &Report, style: Style) -> String {
    let mut totals: BTreeMap<[String; 3], (u64, BTreeSet<&str>, u64)> = BTreeMap::new();
    for file in &report.files {
        for image in file.images.iter().filter(|image| image.is_device()) {
            let key = [dash(&image.kinds.join("+")), dash(&image.triple), dash(&image.target)];
            let (images, files, size) = totals.entry(key).or_default();
            *images += 1;
            files.insert(&file.file);
            *size = size.saturating_add(image.size);
        }
    }
    let mut rows = vec![["kind", "triple", "target", "images", "files", "size"].map(str::to_owned)];
    rows.extend(totals.into_iter().map(|([kind, triple, target], (images, files, bytes))| {
        [kind, triple, target, images.to_string(), files.len().to_string(), size(bytes, style)]
    }));
    let mut out = String::new();
    if rows.len() == 1 {
        out.push_str("no device code\n");
    } else {
        columns(&mut out, &rows, &[3, 4, 5], style);
    }
    out
}

/// The report as text. Files without device code and without errors have a line, too.
pub(crate) fn text(report: &Report, style: Style) -> String {
    let mut out = String::new();
    for (index, file) in report.files.iter().enumerate() {
        if index > 0 {
            out.push('\n');
        }
        file_text(&mut out, file, style);
    }
    out
}

fn file_text(out: &mut String, file: &FileReport, style: Style) {
    let device = file.images.iter().filter(|image| image.is_device()).count();
    if file.kind == UNREADABLE {
        let _ = writeln!(out, "{}: {UNREADABLE}", printable(&file.file));
        return;
    }
    let count = match (file.errors.is_empty(), device) {
        (false, 0) => "nothing that can be read".to_owned(),
        (true, 0) => "no device code".to_owned(),
        (_, 1) => "1 device image".to_owned(),
        (_, many) => format!("{many} device images"),
    };
    let _ = writeln!(out, "{}: {}, {count}", printable(&file.file), file.kind);
    if !file.also.is_empty() {
        let _ = writeln!(out, "  the same file as {}", printable(&file.also.join(", ")));
    }
    if !file.images.is_empty() {
        let title =
            ["#", "where", "container", "kind", "triple", "target", "format", "size", "packed", "sha256"].map(str::to_owned);
        let rows = std::iter::once(title).chain(file.images.iter().map(|image| row(image, style)));
        columns(out, &rows.collect::<Vec<_>>(), &[0, 7, 8], style);
    }
    for image in &file.images {
        if let Some(kernels) = image.kernels.as_deref().filter(|kernels| !kernels.is_empty()) {
            let _ = writeln!(out, "  kernels of {}:", image.index);
            kernel_table(out, kernels, style);
        }
    }
    for image in file.images.iter().filter(|image| image.extracted.is_some()) {
        let _ = writeln!(out, "  {} -> {}", image.index, printable(image.extracted.as_deref().unwrap_or_default()));
    }
    made_by(out, &file.images);
    for registration in &file.registrations {
        let _ = writeln!(out, "  {}", printable(&registers(registration)));
    }
    for table in &file.entries {
        let _ = writeln!(out, "  {}", printable(&entries(table)));
    }
    for linker in &file.linked_by {
        let _ = writeln!(out, "  {}", printable(&linked_by(linker)));
    }
}

fn row(image: &Image, style: Style) -> [String; 10] {
    let packed = image.compressed_size.map_or("-".to_owned(), |bytes| size(bytes, style));
    let hash = image.sha256.as_deref().and_then(|hash| hash.get(..12)).unwrap_or("-");
    [
        image.index.to_string(),
        place(image),
        image.container.unwrap_or("-").to_owned(),
        dash(&image.kinds.join("+")),
        dash(&image.triple),
        dash(&image.target),
        match (&image.machine, image.format) {
            (Some(machine), "elf") => format!("elf/{machine}"),
            (_, format) => format.to_owned(),
        },
        size(image.size, style),
        packed,
        hash.to_owned(),
    ]
}

/// Members and section, and how far into the section the image starts.
fn place(image: &Image) -> String {
    let mut text = String::new();
    let mut start = Some(0);
    for step in &image.path {
        match step {
            Step::Member { name, offset, .. } => {
                let _ = write!(text, "({name})");
                start = *offset;
            }
            Step::Section { name, offset, .. } => {
                let _ = write!(text, "{}{name}", if text.is_empty() { "" } else { " " });
                start = *offset;
            }
            Step::Symbol { name, offset, .. } => {
                let _ = write!(text, " {name}");
                start = *offset;
            }
            Step::Compressed { .. } | Step::Container { .. } => {}
        }
    }
    if let (Some(offset), Some(start)) = (image.offset, start)
        && (offset > start || text.is_empty())
    {
        let _ = write!(text, "+{:#x}", offset - start);
    }
    dash(&text)
}

fn dash(text: &str) -> String {
    if text.is_empty() { "-".to_owned() } else { text.to_owned() }
}

/// A column of the table of kernels: its title, and the value for a kernel.
type Column = (&'static str, fn(&Kernel) -> Option<u64>);

fn kernel_table(out: &mut String, kernels: &[Kernel], style: Style) {
    const SIZES: [&str; 4] = ["shared", "scratch", "arguments", "code"];
    let all: [Column; 10] = [
        ("registers", |kernel| kernel.registers),
        ("vgprs", |kernel| kernel.vgprs),
        ("agprs", |kernel| kernel.agprs),
        ("sgprs", |kernel| kernel.sgprs),
        ("vgpr spills", |kernel| kernel.spilled_vgprs),
        ("sgpr spills", |kernel| kernel.spilled_sgprs),
        ("shared", |kernel| kernel.shared),
        ("scratch", |kernel| kernel.scratch),
        ("arguments", |kernel| kernel.arguments),
        ("code", |kernel| kernel.code_size),
    ];
    // Columns that no kernel of this image has a value for belong to other vendors' devices.
    let used: Vec<Column> = all.into_iter().filter(|(_, value)| kernels.iter().any(|kernel| value(kernel).is_some())).collect();
    let titles = used.iter().map(|(title, _)| (*title).to_owned());
    let name = |kernel: &Kernel| kernel.demangled.as_ref().filter(|_| !style.mangled).unwrap_or(&kernel.name).clone();
    let mut rows = vec![titles.chain(["name".to_owned()]).collect::<Vec<_>>()];
    for kernel in kernels {
        let cell = |(title, value): &Column| match value(kernel) {
            Some(bytes) if SIZES.contains(title) => size(bytes, style),
            Some(count) => count.to_string(),
            None => "-".to_owned(),
        };
        rows.push(used.iter().map(cell).chain([name(kernel)]).collect());
    }
    columns(out, &rows, &(0..used.len()).collect::<Vec<_>>(), style);
}

fn registers(registration: &Registration) -> String {
    let Registration { members, runtime, symbol, found, libraries, .. } = registration;
    let members: String = members.iter().map(|member| format!("({member}) ")).collect();
    let mut text = format!("{members}registers with {runtime}: {symbol}");
    match *found {
        "here" => text.push_str(", which is in the file itself"),
        "library" if libraries.is_empty() => text.push_str(", which no needed library was found to have"),
        _ => {}
    }
    for library in libraries {
        let path = library.path.as_deref().unwrap_or("not found");
        let _ = write!(text, ", from {} => {path}", library.name);
        if !library.through.is_empty() {
            let _ = write!(text, " (through {})", library.through.join(", "));
        }
    }
    text
}

/// Who made the images: one line for each tool or pair of tools, with the numbers of its images.
fn made_by(out: &mut String, images: &[Image]) {
    let mut by: BTreeMap<&[String], Vec<usize>> = BTreeMap::new();
    for image in images.iter().filter(|image| !image.producers.is_empty()) {
        by.entry(&image.producers).or_default().push(image.index);
    }
    let mut lines: Vec<_> = by.into_iter().collect();
    lines.sort_by_key(|(_, indices)| indices.first().copied());
    for (producers, indices) in lines {
        let _ = writeln!(out, "  made by {}: {}", printable(&producers.join(", ")), ranges(&indices));
    }
}

/// Numbers in ascending order, as in `0-3 7`.
fn ranges(numbers: &[usize]) -> String {
    let runs = numbers.chunk_by(|one, next| one + 1 == *next).map(|run| match run {
        [first, .., last] => format!("{first}-{last}"),
        _ => run.iter().map(usize::to_string).collect(),
    });
    runs.collect::<Vec<_>>().join(" ")
}

fn entries(Entries { members, section, entry_size, count, llvm }: &Entries) -> String {
    let members: String = members.iter().map(|member| format!("({member}) ")).collect();
    match (entry_size, count, llvm) {
        (Some(size), Some(count), Some(llvm)) => {
            let entries = if *count == 1 { "entry" } else { "entries" };
            format!("{members}{section}: {count} {entries} of {size} bytes, as LLVM {llvm} has them")
        }
        _ => format!("{members}{section}: entries of an unknown form"),
    }
}

fn linked_by(Linker { members, offld, device_compiler }: &Linker) -> String {
    let members: String = members.iter().map(|member| format!("({member}) ")).collect();
    let compiler = device_compiler.as_ref().map(|compiler| format!(" with {compiler}")).unwrap_or_default();
    format!("{members}device code linked by offld {offld}{compiler}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_a_row_are_a_range() {
        assert_eq!([ranges(&[]), ranges(&[4]), ranges(&[0, 1, 2, 5, 7, 8])], ["", "4", "0-2 5 7-8"]);
    }
}
