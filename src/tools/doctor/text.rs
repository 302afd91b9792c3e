//! The report as text for people: what was found, then what can be linked and what is missing for the rest.

use std::fmt::Write as _;
use std::path::Path;

use super::report::{Kind, Link, Missing, Part, Remote, Report, Step};
use crate::model::printable;
use crate::sys::table::{self, Style};

/// The report as text.
pub(crate) fn text(report: &Report, style: Style) -> String {
    let mut out = String::new();
    section(&mut out, &report.generator, &own(report), style);
    section(&mut out, "compilers (* links device code)", &compilers(report), style);
    let linkers: Vec<[String; 2]> =
        report.linkers.iter().map(|own| [marked(own.chosen, &shown(&own.path)), said(own.says.as_deref())]).collect();
    section(&mut out, "host linkers (* is run by ld.offld)", &linkers, style);
    section(&mut out, "device tools", &parts(&report.tools), style);
    section(&mut out, "libraries and headers", &parts(&report.files), style);
    section(&mut out, "devices", &devices(report), style);
    section(&mut out, "cache", &caches(report), style);
    let _ = writeln!(out, "links");
    report.links.iter().for_each(|link| link_text(&mut out, link));
    if report.links.iter().any(|link| link.missing.iter().any(|missing| missing.get.iter().any(|source| source.from == "debian")))
    {
        let _ = writeln!(out, "Debian's packages of LLVM that your sources do not have are at https://apt.llvm.org");
    }
    let _ = writeln!(out, "verdict: {}", verdict(report));
    out
}

/// A heading, and rows below it; a row without a heading is of no use.
fn section<R: AsRef<[String]>>(out: &mut String, title: &str, rows: &[R], style: Style) {
    let _ = writeln!(out, "{}", printable(title));
    if rows.is_empty() {
        let _ = writeln!(out, "  none");
    }
    table::columns(out, rows, &[], style);
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

fn marked(chosen: bool, text: &str) -> String {
    format!("{} {text}", if chosen { '*' } else { ' ' })
}

fn said(text: Option<&str>) -> String {
    text.unwrap_or("does not run").to_owned()
}

fn own(report: &Report) -> Vec<[String; 2]> {
    let mut rows = Vec::new();
    let mut row = |name: &str, value: String| rows.push([name.to_owned(), value]);
    if let Some(path) = &report.offld.path {
        row("program", shown(path));
    }
    let names = report.offld.names.as_ref().map(|folder| shown(folder));
    row("for clang's -B", names.unwrap_or_else(|| "no folder; `offld links DIR` makes one".to_owned()));
    let llvm = &report.offld_llvm;
    let state = match (&llvm.path, &llvm.error) {
        (_, Some(error)) => error.clone(),
        (Some(path), None) => format!("{}, of the same build", shown(path)),
        (None, None) => "not found".to_owned(),
    };
    row("offld-llvm", state);
    rows
}

fn compilers(report: &Report) -> Vec<[String; 3]> {
    let of = |llvm: Option<u32>| llvm.map_or_else(String::new, |llvm| format!("LLVM {llvm}"));
    let mut rows: Vec<[String; 3]> = report
        .compilers
        .iter()
        .map(|own| [marked(own.chosen, &shown(&own.path)), of(own.llvm), said(own.says.as_deref())])
        .collect();
    rows.extend(report.compiler_error.iter().map(|error| [format!("  {error}"), String::new(), String::new()]));
    rows
}

fn parts(parts: &[Part]) -> Vec<[String; 2]> {
    let path = |part: &Part| part.path.as_ref().map_or_else(|| "-".to_owned(), |path| shown(path));
    parts.iter().map(|part| [part.name.to_owned(), path(part)]).collect()
}

fn devices(report: &Report) -> Vec<[String; 2]> {
    let devices = &report.devices;
    let list = |all: &[String]| if all.is_empty() { "none".to_owned() } else { all.join(" ") };
    let driver = devices.nvidia_driver.map_or_else(String::new, |driver| format!(" (driver {driver})"));
    let mut rows: Vec<[String; 2]> = devices.cpu.iter().map(|cpu| ["processor".to_owned(), cpu.clone()]).collect();
    match &devices.error {
        Some(error) => rows.push(["not known".to_owned(), error.clone()]),
        None => {
            rows.push(["AMD's GPUs".to_owned(), list(&devices.amd)]);
            rows.push(["NVIDIA's GPUs".to_owned(), list(&devices.nvidia) + &driver]);
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
        row("folder", shown(folder));
    }
    if let (Some(held), Some(limit)) = (cache.size, cache.limit) {
        row("size", format!("{} of {}, {} images", size(held), size(limit), cache.images.unwrap_or_default()));
    }
    if let Some(error) = &cache.error {
        row("not used", error.clone());
    }
    if let Some(Remote { url, read_only, signed, answers, problems }) = &report.remote {
        let state = if *answers { "answers" } else { "does not answer" };
        let reads = if *read_only { ", is only read" } else { "" };
        let trust = if *signed { ", signed" } else { ", not signed" };
        row("shared at", format!("{url}: {state}{reads}{trust}"));
        problems.iter().for_each(|problem| row("", problem.clone()));
    }
    rows
}

fn link_text(out: &mut String, link: &Link) {
    let state = match (link.link, link.compile) {
        (true, true) => "yes",
        (true, false) => "link only",
        (false, _) => "no",
    };
    let _ = writeln!(out, "  {state:<9}  {}", link.kind.name());
    let mut told: Vec<&Missing> = Vec::new();
    for missing in &link.missing {
        let _ = writeln!(out, "    {}: {}", needed(missing.step), printable(&missing.what));
        // What several things come from is said once.
        if told.iter().any(|earlier| earlier.get == missing.get) {
            continue;
        }
        told.push(missing);
        for source in &missing.get {
            let name = match source.from {
                "debian" => "Debian: ",
                "pypi" => "PyPI: ",
                "option" => "or say ",
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
    let able: Vec<&str> = report.links.iter().filter(|link| link.link).map(|link| link.kind.name()).collect();
    match (report.host_openmp, able.len()) {
        (_, 0) => "nothing can be linked".to_owned(),
        (true, count) if count == Kind::ALL.len() => "everything can be linked".to_owned(),
        _ => format!("can be linked: {}", able.join("; ")),
    }
}
