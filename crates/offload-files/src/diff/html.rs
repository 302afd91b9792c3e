//! Page of `offld diff --html`: one file with a table of the kernels that differ, which can be
//! searched and sorted. The page looks like that of `offld size --html`, and loads nothing.

use std::io::{self, BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result};

use super::report::Report;
use super::text::{difference, heading};
use crate::size::page::{STYLE, escaped, fill, hash, unknown};
use offld_system::atomic_file;

const PAGE: &str = include_str!("page/page.html");
/// What this page has in addition to the style of all pages.
const OWN_STYLE: &str = include_str!("page/page.css");
const SCRIPT: &str = include_str!("page/page.js");
/// The columns.
const HEADINGS: [&str; 5] = ["Change", "Kernel", "Architecture", "Difference", "File"];

/// Writes the page to `path`, atomically.
///
/// # Errors
/// The page cannot be written.
pub fn save(report: &Report, path: &Path) -> Result<()> {
    let written = atomic_file::replace(path, |file| {
        let mut out = BufWriter::new(file);
        write(&mut out, report)?;
        Ok(out.flush()?)
    });
    written.with_context(|| format!("cannot write the page to {}", path.display()))
}

fn write(out: &mut impl Write, report: &Report) -> io::Result<()> {
    let title = || {
        let files = |files: &[String]| match files {
            [one] => one.clone(),
            several => format!("{} files", several.len()),
        };
        let (old, new) = (files(&report.old_files), files(&report.new_files));
        format!("{new}, compared with {old}")
    };
    let style = format!("{STYLE}{OWN_STYLE}");
    fill(out, PAGE, |out, name| match name {
        "title" => out.write_all(escaped(&title()).as_bytes()),
        "generator" => out.write_all(escaped(&report.generator).as_bytes()),
        "style" => out.write_all(style.as_bytes()),
        "script" => out.write_all(SCRIPT.as_bytes()),
        "style-hash" => out.write_all(hash(&style).as_bytes()),
        "script-hash" => out.write_all(hash(SCRIPT).as_bytes()),
        "totals" => report
            .archs
            .iter()
            .try_for_each(|arch| write!(out, "<li>{}</li>", escaped(&heading(arch)))),
        "headings" => HEADINGS
            .iter()
            .try_for_each(|name| write!(out, "<th scope=\"col\">{name}</th>")),
        "rows" => rows(out, report),
        _ => Err(unknown(name)),
    })
}

fn rows(out: &mut impl Write, report: &Report) -> io::Result<()> {
    for arch in &report.archs {
        for change in &arch.changes {
            let kernel = escaped(&change.kernel);
            let (arch, place) = (escaped(&arch.arch), escaped(&change.place));
            let difference = escaped(&difference(change));
            let code = change.code_diff.as_ref().map(|code| {
                let code = escaped(code);
                format!("<details><summary>code</summary><pre>{code}</pre></details>")
            });
            writeln!(
                out,
                "<tr><td>{}</td><th scope=\"row\"><bdi class=\"name\">{kernel}</bdi></th><td>{arch}</td><td class=\"difference\">{difference}{}</td><td>{place}</td></tr>",
                change.change.name(),
                code.unwrap_or_default()
            )?;
        }
    }
    Ok(())
}
