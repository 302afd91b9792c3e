//! Lists the device code in files: objects, programs, archives, zip files, containers, bare images.
//! [`crate::contents`] finds it. Also shows the report as text.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rayon::prelude::*;

use crate::contents::report::{
    Entries, ExternalFile, ExternalImages, Fault, FileReport, Image, Linker, Module, Pack,
    PackReference, Registration, Report, SCHEMA, Step, UNREADABLE,
};
use crate::contents::{Options, Reader, folders};
use offld_system::io::outputs::{Outputs, io_error};
use offld_system::progress::Meter;
use offld_system::scratch::safe_name;
use offld_system::session::Session;
use offld_system::table::{Column, Style, left_out, size, table};
use offld_system::terminal::wrapped;
use offld_system::threads;
use offload_formats::kernels::Kernel;
use offload_formats::model::{OffloadKind, printable};

/// The files to inspect, and options.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// The files, in the order of their reports, and directories. From directories, every file with
    /// device code is reported.
    pub files: Vec<PathBuf>,
    /// The options of the inspection.
    pub options: Options,
    /// The directory to extract images to.
    pub extract: Option<PathBuf>,
}

/// Inspects the files. Errors in a file are part of its report. Fails if extracted images cannot be
/// written, or after a signal.
pub fn inspect(request: &Request, session: &Session) -> Result<Report> {
    let (paths, faults) = folders::expand(&request.files, session);
    let mut options = request.options.clone();
    options.keep_bytes |= request.extract.is_some();
    let meter = Meter::new(
        session.shell.is_terminal(),
        paths.iter().map(|found| found.size).sum(),
    );
    let reader = Reader::new(options, session).shown_by(&meter);
    let mut files: Vec<FileReport> = threads::in_parallel(|| {
        let each = paths.par_iter().filter_map(|found| {
            let also = found
                .also
                .iter()
                .map(|path| path.display().to_string())
                .collect();
            Some(FileReport {
                also,
                ..reader.found(found)
            })
            .filter(|file| found.is_wanted(file))
        });
        each.collect()
    });
    files.extend(
        faults
            .into_iter()
            .map(|(path, error)| reader.unreadable(&path, &error)),
    );
    drop(meter);
    session.signals.check()?;
    if let Some(directory) = &request.extract {
        extract(&mut files, directory, session)?;
    }
    Ok(Report {
        schema: SCHEMA,
        generator: format!("offld {}", env!("CARGO_PKG_VERSION")),
        files,
    })
}

/// Extracts the images of all files to `directory`, and adds their file names to the reports. If
/// one image fails, none is written. File names consist of an image's metadata, in which characters
/// that could lead out of the directory are replaced. Existing files are never overwritten.
fn extract(files: &mut [FileReport], directory: &Path, session: &Session) -> Result<()> {
    let context = || format!("cannot create the directory `{}`", directory.display());
    fs::create_dir_all(directory).with_context(context)?;
    let mut outputs = Outputs::new(session);
    let mut taken = HashSet::new();
    for file in files {
        let stem = Path::new(&file.file)
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        for image in &mut file.images {
            let Some(piece) = image
                .piece
                .take()
                .filter(|piece| image.is_device() && piece.size() > 0)
            else {
                continue;
            };
            let path = free(directory, &name(&stem, image), &mut taken);
            if fs::symlink_metadata(&path).is_ok() {
                bail!(
                    "`{}` already exists: remove the file, or pass another directory",
                    path.display()
                );
            }
            let mut output = outputs.create(&path)?;
            piece
                .copy_to(&mut output)
                .map_err(|error| io_error(&path, &error))?;
            image.extracted = Some(path.display().to_string());
        }
    }
    outputs.commit()
}

/// The name of an extracted file, such as `lib.so.0.hip-amdgcn-amd-amdhsa-gfx90a.elf`.
fn name(stem: &str, image: &Image) -> String {
    let member = image
        .members
        .last()
        .map(|member| format!(".{}", member.rsplit('/').next().unwrap_or_default()));
    let known = [
        image.kinds.join("+"),
        image.triple.clone(),
        image.target.clone(),
    ];
    let known: Vec<String> = known.into_iter().filter(|part| !part.is_empty()).collect();
    let known = if known.is_empty() {
        "image".to_owned()
    } else {
        known.join("-")
    };
    let end = match image.format {
        "elf" => "elf",
        "cubin" => "cubin",
        "bitcode" => "bc",
        "spirv" => "spv",
        "ptx" => "ptx",
        "archive" => "a",
        _ => "bin",
    };
    format!(
        "{stem}{}.{}.{known}.{end}",
        member.unwrap_or_default(),
        image.index
    )
}

/// A path in `directory` that no other image of this run has. Inspected files in different
/// directories may have the same name.
fn free(directory: &Path, name: &str, taken: &mut HashSet<PathBuf>) -> PathBuf {
    let name = safe_name(name);
    let names = std::iter::once(name.clone()).chain((1..).map(|number| format!("{number}.{name}")));
    let mut paths = names.map(|name| directory.join(name));
    let path = paths.find(|path| taken.insert(path.clone()));
    path.unwrap_or_else(|| directory.join(name))
}

// The report as text: a table of the images of each file, their kernels, and the registrations of
// the file.

const SUMMARY: [Column; 6] = [
    Column::text("kind"),
    Column::text("triple"),
    Column::text("target"),
    Column::number("images"),
    Column::number("files").left_out(1),
    Column::number("size"),
];
/// The columns with the least information are omitted first.
const IMAGES: [Column; 10] = [
    Column::number("#"),
    Column::text("where").shows_end(),
    Column::text("container").left_out(3),
    Column::text("kind").left_out(2),
    Column::text("triple"),
    Column::text("target"),
    Column::text("format").left_out(1),
    Column::number("size"),
    Column::number("packed").left_out(4),
    Column::text("sha256").left_out(5),
];

/// One line for each kind and target of device code in all files: the number of images and files,
/// and the total size.
pub fn summary_text(report: &Report, style: Style) -> String {
    let mut totals: BTreeMap<[String; 3], (u64, BTreeSet<&str>, u64)> = BTreeMap::new();
    for file in &report.files {
        for image in file.images.iter().filter(|image| image.is_device()) {
            let key = [
                dash(&image.kinds.join("+")),
                dash(&image.triple),
                dash(&image.target),
            ];
            let (images, files, size) = totals.entry(key).or_default();
            *images += 1;
            files.insert(&file.file);
            *size = size.saturating_add(image.size);
        }
    }
    let row = |([kind, triple, target], (images, files, bytes)): (
        [String; 3],
        (u64, BTreeSet<&str>, u64),
    )| {
        [
            kind,
            triple,
            target,
            images.to_string(),
            files.len().to_string(),
            size(bytes, style),
        ]
    };
    let rows: Vec<_> = totals.into_iter().map(row).collect();
    if rows.is_empty() {
        return "no device code\n".to_owned();
    }
    let mut out = String::new();
    let hidden = table(&mut out, &SUMMARY, &rows, style);
    out + &wrapped(&left_out(&hidden), style.width)
}

/// The report as text. Files without device code and without errors have a line, too.
pub fn report_text(report: &Report, style: Style) -> String {
    let mut out = String::new();
    let mut hidden = Vec::new();
    for (index, file) in report.files.iter().enumerate() {
        if index > 0 {
            out.push('\n');
        }
        file_text(&mut out, file, &mut hidden, style);
    }
    out + &wrapped(&left_out(&hidden), style.width)
}

fn file_text(out: &mut String, file: &FileReport, hidden: &mut Vec<&'static str>, style: Style) {
    if file.kind == UNREADABLE {
        return prose(out, &format!("{}: {UNREADABLE}", file.file), style);
    }
    prose(
        out,
        &format!("{}: {}, {}", file.file, file.kind, count(file)),
        style,
    );
    if !file.also.is_empty() {
        prose(
            out,
            &format!("  the same file as {}", file.also.join(", ")),
            style,
        );
    }
    if !file.images.is_empty() {
        let rows: Vec<_> = file.images.iter().map(|image| row(image, style)).collect();
        hidden.extend(table(out, &IMAGES, &rows, style));
    }
    for image in &file.images {
        if let Some(kernels) = image
            .kernels
            .as_deref()
            .filter(|kernels| !kernels.is_empty())
        {
            let _ = writeln!(out, "  kernels of image {}:", image.index);
            hidden.extend(kernel_table(out, kernels, style));
        }
    }
    let extracted = file
        .images
        .iter()
        .filter_map(|image| Some((image.index, image.extracted.as_deref()?)));
    extracted.for_each(|(index, path)| prose(out, &format!("  image {index} -> {path}"), style));
    made_by(&file.images)
        .iter()
        .for_each(|line| prose(out, line, style));
    let lines = file
        .registrations
        .iter()
        .map(registers)
        .chain(file.entries.iter().map(entries));
    let lines = lines.chain(modules(&file.modules));
    let lines = lines.chain(file.linked_by.iter().map(linked_by));
    let lines = lines.chain(file.kpack.iter().map(kpack));
    let lines = lines.chain(file.external.iter().map(external));
    let lines = lines.chain(file.faults.iter().map(fault));
    lines.for_each(|line| prose(out, &format!("  {line}"), style));
}

/// The start of a line about something in these members.
fn of_members(members: &[String]) -> String {
    members
        .iter()
        .map(|member| format!("({member}) "))
        .collect()
}

/// The archives with the code of a program.
fn kpack(program: &PackReference) -> String {
    let count = match program.registrations.len() {
        1 => "1 registration".to_owned(),
        many => format!("{many} registrations"),
    };
    let place = match program.packs.as_slice() {
        [] => program.search_paths.join(", "),
        packs => {
            let one = |pack: &Pack| format!("{} ({})", pack.file, pack.architectures.join(", "));
            packs.iter().map(one).collect::<Vec<_>>().join(", ")
        }
    };
    format!(
        "{}kpack: code of {}, {count}, in {place}",
        of_members(&program.members),
        program.binary
    )
}

/// The files with the images of a registration.
fn external(images: &ExternalImages) -> String {
    let file = |file: &ExternalFile| {
        let missing = if file.found == Some(false) {
            ", not there"
        } else {
            ""
        };
        format!("{} ({}{missing})", file.name, file.target)
    };
    let files: Vec<String> = images.files.iter().map(file).collect();
    format!(
        "{}external images for {} in {}: {}",
        of_members(&images.members),
        images.runtime,
        images.directory,
        files.join(", ")
    )
}

fn fault(fault: &Fault) -> String {
    format!(
        "{}{}: {}",
        of_members(&fault.members),
        fault.what,
        fault.text
    )
}

/// Appends a line with names from the file, wrapped.
fn prose(out: &mut String, line: &str, style: Style) {
    out.push_str(&wrapped(&printable(line), style.width));
    out.push('\n');
}

/// The number of images of a file. Bundles also have entries for the host, which are rows of the
/// table but not device images.
fn count(file: &FileReport) -> String {
    let device = file.images.iter().filter(|image| image.is_device()).count();
    let host = match file.images.len() - device {
        0 => String::new(),
        1 => ", 1 host entry".to_owned(),
        many => format!(", {many} host entries"),
    };
    let device = match (file.errors.is_empty(), device) {
        (_, 0) if !file.kpack.is_empty() => "device code in kpack archives".to_owned(),
        (_, 0) if !file.external.is_empty() => "device code in other files".to_owned(),
        (false, 0) => "nothing readable".to_owned(),
        (true, 0) => "no device code".to_owned(),
        (_, 1) => "1 device image".to_owned(),
        (_, many) => format!("{many} device images"),
    };
    device + &host
}

fn row(image: &Image, style: Style) -> [String; 10] {
    let packed = image
        .compressed_size
        .map_or("-".to_owned(), |bytes| size(bytes, style));
    let hash = image
        .sha256
        .as_deref()
        .and_then(|hash| hash.get(..12))
        .unwrap_or("-");
    [
        image.index.to_string(),
        place(image),
        image.container.unwrap_or("-").to_owned(),
        dash(&image.kinds.join("+")),
        dash(&image.triple),
        dash(&image.target),
        match (&image.machine, image.format) {
            // Machine 0 means that there is none.
            (Some(machine), "elf") if machine != "0" => format!("elf/{machine}"),
            (_, format) => format.to_owned(),
        },
        size(image.size, style),
        packed,
        hash.to_owned(),
    ]
}

/// Members and section, and the offset of the image in the section.
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
            Step::File { name, .. } => {
                let _ = write!(text, "{name}");
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
    if text.is_empty() {
        "-".to_owned()
    } else {
        text.to_owned()
    }
}

/// A value of a kernel: its title, the order in which columns are omitted, whether it is a number
/// of bytes, and the function that returns it.
struct Value {
    title: &'static str,
    left_out: u8,
    is_size: bool,
    get: fn(&Kernel) -> Option<u64>,
}

const fn count_of(title: &'static str, left_out: u8, get: fn(&Kernel) -> Option<u64>) -> Value {
    Value {
        title,
        left_out,
        is_size: false,
        get,
    }
}

const fn bytes_of(title: &'static str, left_out: u8, get: fn(&Kernel) -> Option<u64>) -> Value {
    Value {
        title,
        left_out,
        is_size: true,
        get,
    }
}

const VALUES: [Value; 10] = [
    count_of("registers", 0, |kernel| kernel.registers),
    count_of("vgprs", 0, |kernel| kernel.vgprs),
    count_of("agprs", 6, |kernel| kernel.agprs),
    count_of("sgprs", 5, |kernel| kernel.sgprs),
    count_of("vgpr spills", 2, |kernel| kernel.spilled_vgprs),
    count_of("sgpr spills", 4, |kernel| kernel.spilled_sgprs),
    bytes_of("shared", 1, |kernel| kernel.shared),
    bytes_of("scratch", 1, |kernel| kernel.scratch),
    bytes_of("arguments", 3, |kernel| kernel.arguments),
    bytes_of("code", 0, |kernel| kernel.code_size),
];

fn kernel_table(out: &mut String, kernels: &[Kernel], style: Style) -> Vec<&'static str> {
    // Columns without a value for the kernels of this image belong to devices of other vendors.
    let has = |value: &&Value| kernels.iter().any(|kernel| (value.get)(kernel).is_some());
    let used: Vec<&Value> = VALUES.iter().filter(has).collect();
    let numbers = used
        .iter()
        .map(|value| Column::number(value.title).left_out(value.left_out));
    let columns: Vec<Column> = numbers.chain([Column::text("name")]).collect();
    let name = |kernel: &Kernel| {
        kernel
            .demangled
            .as_ref()
            .filter(|_| !style.mangled)
            .unwrap_or(&kernel.name)
            .clone()
    };
    let row = |kernel: &Kernel| {
        let cell = |value: &&Value| match (value.get)(kernel) {
            Some(bytes) if value.is_size => size(bytes, style),
            Some(count) => count.to_string(),
            None => "-".to_owned(),
        };
        used.iter().map(cell).chain([name(kernel)]).collect()
    };
    let rows: Vec<Vec<String>> = kernels.iter().map(row).collect();
    table(out, &columns, &rows, style)
}

fn registers(registration: &Registration) -> String {
    let Registration {
        members,
        runtime,
        symbol,
        found,
        libraries,
        ..
    } = registration;
    let members = of_members(members);
    let mut text = format!(
        "{members}registers with {}: calls {symbol}",
        OffloadKind::title_of(runtime)
    );
    match *found {
        "here" => text.push_str(", which the file itself defines"),
        "library" if libraries.is_empty() => text.push_str(", which no needed library defines"),
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

/// The tools that made the images: one line for each tool or pair of tools, with the indices of its
/// images.
fn made_by(images: &[Image]) -> Vec<String> {
    let mut by: BTreeMap<&[String], Vec<usize>> = BTreeMap::new();
    for image in images.iter().filter(|image| !image.producers.is_empty()) {
        by.entry(&image.producers).or_default().push(image.index);
    }
    let mut lines: Vec<_> = by.into_iter().collect();
    lines.sort_by_key(|(_, indices)| indices.first().copied());
    let line = |(producers, indices): (&[String], Vec<usize>)| {
        let images = if indices.len() == 1 {
            "image"
        } else {
            "images"
        };
        format!(
            "  {images} {}: made by {}",
            ranges(&indices),
            producers.join(", ")
        )
    };
    lines.into_iter().map(line).collect()
}

/// Numbers in ascending order, as in `0-3 7`.
fn ranges(numbers: &[usize]) -> String {
    let runs = numbers
        .chunk_by(|one, next| one + 1 == *next)
        .map(|run| match run {
            [first, .., last] => format!("{first}-{last}"),
            _ => run.iter().map(usize::to_string).collect(),
        });
    runs.collect::<Vec<_>>().join(" ")
}

fn entries(
    Entries {
        members,
        section,
        entry_size,
        count,
        llvm,
    }: &Entries,
) -> String {
    let members = of_members(members);
    match (entry_size, count, llvm) {
        (Some(size), Some(count), Some(llvm)) => {
            let entries = if *count == 1 { "entry" } else { "entries" };
            format!("{members}{section}: {count} {entries} of {size} bytes, as in LLVM {llvm}")
        }
        _ => format!("{members}{section}: entries of an unknown layout"),
    }
}

/// The lines about the modules that register themselves, for each object those that are linked and
/// those that are not.
fn modules(all: &[Module]) -> impl Iterator<Item = String> {
    let is_same = |one: &Module, next: &Module| {
        (&one.members, one.runtime, one.linked) == (&next.members, next.runtime, next.linked)
    };
    all.chunk_by(is_same).filter_map(|modules| {
        let first = modules.first()?;
        let members = of_members(&first.members);
        let title = OffloadKind::title_of(first.runtime);
        let ids: Vec<&str> = modules.iter().map(|module| module.id.as_str()).collect();
        let ids = ids.join(", ");
        Some(match (first.linked, ids.is_empty()) {
            (true, _) => format!("{members}{title} modules with linked device code: {ids}"),
            (false, true) => format!("{members}{title} code that still needs a device link"),
            (false, false) => {
                format!("{members}{title} modules that still need a device link: {ids}")
            }
        })
    })
}

fn linked_by(
    Linker {
        members,
        offld,
        device_compiler,
    }: &Linker,
) -> String {
    let members = of_members(members);
    let compiler = device_compiler
        .as_ref()
        .map(|compiler| format!(" with {compiler}"))
        .unwrap_or_default();
    format!("{members}device code linked by offld {offld}{compiler}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_a_row_are_a_range() {
        assert_eq!(
            [ranges(&[]), ranges(&[4]), ranges(&[0, 1, 2, 5, 7, 8])],
            ["", "4", "0-2 5 7-8"]
        );
    }
}
