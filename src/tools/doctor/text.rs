//! The report as text: the verdict, the state of the machine, then the possible links and the
//! missing requirements of the others.

use std::fmt::Write as _;
use std::path::Path;

use super::{Kind, Link, Missing, Part, Remote, Report, Step};
use offld_system::table;
use offld_system::terminal::{Colour, Style, wrapped};
use offload_formats::model::printable;

/// Formats the report. Unless `all` is set, impossible links for GPUs that the machine does not
/// have share one line.
pub(crate) fn text(report: &Report, all: bool, style: Style) -> String {
    let colour = if report.host_openmp {
        Colour::Good
    } else {
        Colour::Bad
    };
    let verdict = verdict(report);
    let (first, rest) = verdict.split_once(':').unwrap_or((&verdict, ""));
    let rest = if rest.is_empty() {
        String::new()
    } else {
        format!(":{rest}")
    };
    wrapped(
        &format!(
            "verdict: {}{rest}\n{}",
            style.paint(colour, first),
            details(report, all, style)
        ),
        style.width,
    )
}

fn details(report: &Report, all: bool, style: Style) -> String {
    let mut out = String::new();
    section(&mut out, &report.generator, &own(report), style);
    section(
        &mut out,
        "compilers (* links device code)",
        &compilers(report),
        style,
    );
    let linkers: Vec<[String; 2]> = report
        .linkers
        .iter()
        .map(|own| {
            [
                marked(own.chosen, &path_text(&own.path)),
                version_or_failure(own.says.as_deref()),
            ]
        })
        .collect();
    section(
        &mut out,
        "host linkers (* is the default of ld.offld)",
        &linkers,
        style,
    );
    section(&mut out, "device tools", &parts(&report.tools), style);
    section(
        &mut out,
        "libraries and headers",
        &parts(&report.files),
        style,
    );
    section(&mut out, "devices", &devices(report), style);
    section(&mut out, "cache", &caches(report), style);
    let _ = writeln!(out, "{}", style.paint(Colour::Bold, "links"));
    let (folded, listed): (Vec<&Link>, Vec<&Link>) = report
        .links
        .iter()
        .partition(|link| !all && is_for_absent_gpu(link, report));
    listed
        .iter()
        .for_each(|link| link_text(&mut out, link, style));
    if !folded.is_empty() {
        let names: Vec<&str> = folded.iter().map(|link| link.kind.name()).collect();
        let no = style.paint(Colour::Bad, "no");
        let _ = writeln!(
            out,
            "  {no}         {}: no such GPU in this machine; --all shows the missing parts",
            names.join("; ")
        );
    }
    if listed.iter().any(|link| {
        link.missing
            .iter()
            .any(|missing| missing.get.iter().any(|source| source.from == "debian"))
    }) {
        let _ = writeln!(
            out,
            "LLVM packages that your Debian sources lack are at https://apt.llvm.org"
        );
    }
    out
}

/// Whether a kind of link is impossible and needs a GPU that the machine does not have.
fn is_for_absent_gpu(link: &Link, report: &Report) -> bool {
    let devices = &report.devices;
    let has_none = match link.kind {
        Kind::OpenMpAmd | Kind::Hip => devices.amd.is_empty(),
        Kind::OpenMpNvidia | Kind::Cuda => devices.nvidia.is_empty(),
        Kind::OpenMpHost | Kind::Sycl => false,
    };
    !link.link && has_none && devices.error.is_none()
}

/// Adds a heading and the rows below it.
fn section<R: AsRef<[String]>>(out: &mut String, title: &str, rows: &[R], style: Style) {
    let _ = writeln!(out, "{}", style.paint(Colour::Bold, &printable(title)));
    if rows.is_empty() {
        let _ = writeln!(out, "  none");
    }
    // Long lines are wrapped, never truncated.
    table::columns(out, rows, &[], style.wide(true));
}

fn path_text(path: &Path) -> String {
    path.display().to_string()
}

fn marked(chosen: bool, text: &str) -> String {
    format!("{} {text}", if chosen { '*' } else { ' ' })
}

fn version_or_failure(text: Option<&str>) -> String {
    text.unwrap_or("does not run").to_owned()
}

fn own(report: &Report) -> Vec<[String; 2]> {
    let mut rows = Vec::new();
    let mut row = |name: &str, value: String| rows.push([name.to_owned(), value]);
    if let Some(path) = &report.offld.path {
        row("program", path_text(path));
    }
    let names = report.offld.names.as_ref().map(|folder| path_text(folder));
    row(
        "for clang's -B",
        names.unwrap_or_else(|| "none; `offld links DIR` creates a directory".to_owned()),
    );
    let llvm = &report.offld_llvm;
    let state = match (&llvm.path, &llvm.error) {
        (_, Some(error)) => error.clone(),
        (Some(path), None) => format!("{}, from the same build", path_text(path)),
        (None, None) => "not found".to_owned(),
    };
    row("offld-llvm", state);
    rows
}

fn compilers(report: &Report) -> Vec<[String; 3]> {
    let version = |llvm: Option<u32>| llvm.map_or_else(String::new, |llvm| format!("LLVM {llvm}"));
    let mut rows: Vec<[String; 3]> = report
        .compilers
        .iter()
        .map(|own| {
            [
                marked(own.chosen, &path_text(&own.path)),
                version(own.llvm),
                version_or_failure(own.says.as_deref()),
            ]
        })
        .collect();
    rows.extend(
        report
            .compiler_error
            .iter()
            .map(|error| [format!("  {error}"), String::new(), String::new()]),
    );
    rows
}

fn parts(parts: &[Part]) -> Vec<[String; 2]> {
    let path = |part: &Part| {
        part.path
            .as_ref()
            .map_or_else(|| "-".to_owned(), |path| path_text(path))
    };
    parts
        .iter()
        .map(|part| [part.name.to_owned(), path(part)])
        .collect()
}

fn devices(report: &Report) -> Vec<[String; 2]> {
    let devices = &report.devices;
    let list = |all: &[String]| {
        if all.is_empty() {
            "none".to_owned()
        } else {
            all.join(" ")
        }
    };
    let driver = devices
        .nvidia_driver
        .map_or_else(String::new, |driver| format!(" (driver {driver})"));
    let mut rows: Vec<[String; 2]> = devices
        .cpu
        .iter()
        .map(|cpu| ["CPU".to_owned(), cpu.clone()])
        .collect();
    match &devices.error {
        Some(error) => rows.push(["unknown".to_owned(), error.clone()]),
        None => {
            rows.push(["AMD GPUs".to_owned(), list(&devices.amd)]);
            rows.push(["NVIDIA GPUs".to_owned(), list(&devices.nvidia) + &driver]);
        }
    }
    rows
}

fn caches(report: &Report) -> Vec<[String; 2]> {
    let cache = &report.cache;
    let size = |bytes: u64| table::size(bytes, Style::default());
    let mut rows = Vec::new();
    let mut row = |name: &str, value: String| rows.push([name.to_owned(), value]);
    if let Some(folder) = &cache.folder {
        row("directory", path_text(folder));
    }
    if let (Some(held), Some(limit)) = (cache.size, cache.limit) {
        row(
            "size",
            format!(
                "{} of {}, {} images",
                size(held),
                size(limit),
                cache.images.unwrap_or_default()
            ),
        );
    }
    if let Some(error) = &cache.error {
        row("not used", error.clone());
    }
    if let Some(Remote {
        url,
        read_only,
        signed,
        answers,
        problems,
    }) = &report.remote
    {
        let state = if *answers {
            "answers"
        } else {
            "does not answer"
        };
        let reads = if *read_only { ", read-only" } else { "" };
        let trust = if *signed { ", signed" } else { ", not signed" };
        row("remote cache", format!("{url}: {state}{reads}{trust}"));
        problems.iter().for_each(|problem| row("", problem.clone()));
    }
    rows
}

fn link_text(out: &mut String, link: &Link, style: Style) {
    let (state, colour) = match (link.link, link.compile) {
        (true, true) => ("yes", Colour::Good),
        (true, false) => ("link only", Colour::Unsure),
        (false, _) => ("no", Colour::Bad),
    };
    let _ = writeln!(
        out,
        "  {}{:gap$}  {}",
        style.paint(colour, state),
        "",
        link.kind.name(),
        gap = 9 - state.len()
    );
    let mut with_sources: Vec<&Missing> = Vec::new();
    for missing in &link.missing {
        let _ = writeln!(
            out,
            "    {}: {}",
            needed(missing.step),
            printable(&missing.what)
        );
        // Requirements with the same sources share one list of sources.
        if with_sources
            .iter()
            .any(|earlier| earlier.get == missing.get)
        {
            continue;
        }
        with_sources.push(missing);
        for source in &missing.get {
            let name = match source.from {
                "debian" => "Debian: ",
                "pypi" => "PyPI: ",
                "option" => "or use ",
                _ => "",
            };
            let _ = writeln!(out, "      {name}{}", source.what);
        }
    }
}

fn needed(step: Step) -> &'static str {
    match step {
        Step::Compile => "to compile",
        Step::Link => "to link",
    }
}

fn verdict(report: &Report) -> String {
    let able: Vec<&str> = report
        .links
        .iter()
        .filter(|link| link.link)
        .map(|link| link.kind.name())
        .collect();
    match (report.host_openmp, able.len()) {
        (_, 0) => "nothing can be linked".to_owned(),
        (true, count) if count == Kind::ALL.len() => "everything can be linked".to_owned(),
        _ => format!("can be linked: {}", able.join("; ")),
    }
}
