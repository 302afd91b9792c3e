//! Bundling into a host object's sections (docs/spec/containers.md 2.10). LLVM runs llvm-objcopy for it; nothing is run here.

use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::Request;
use super::container::contents;
use super::pack::Part;
use crate::formats::bundle::MAGIC;
use crate::formats::fat_object::{self, NewSection};
use crate::io::outputs::{Outputs, trouble};
use crate::io::piece::Piece;
use crate::sys::session::Session;
use crate::sys::toolchain;

/// Writes `host`, an object, with a section for each of `parts`. The host's own section is but a mark, one zero byte.
pub(super) fn bundle(request: &Request, session: &Session, output: &Path, host: &Part<'_>, parts: &[Part<'_>]) -> Result<()> {
    if request.compression.is_some() {
        let named = output.display();
        session
            .shell
            .warn(&format!("-compress has no effect on '{named}': bundles in the sections of an object are not compressed"));
    }
    if request.show_commands {
        show_bundling(output, host, parts, session);
        return Ok(());
    }
    let told = |error: io::Error| trouble(output, &error);
    let object = &host.input.contents;
    let payloads: Vec<Piece> = parts.iter().map(payload).collect();
    let sections: Vec<NewSection<'_>> =
        parts.iter().zip(&payloads).map(|(part, piece)| NewSection { id: &part.id, size: piece.size() }).collect();
    let plan = fat_object::with_sections(object.bytes(), &sections);
    let whole = contents(plan.with_context(|| host.input.path.display().to_string())?, object, &payloads)?;
    let mut outputs = Outputs::new(session);
    let mut made = outputs.create_or_stdout(output)?;
    if let Ok(about) = std::fs::metadata(&host.input.path) {
        // As objcopy does it.
        made.file().set_permissions(about.permissions()).map_err(told)?;
    }
    whole.write_to(&mut made).map_err(told)?;
    outputs.commit()
}

fn payload(part: &Part<'_>) -> Piece {
    if part.is_host { Piece::owned(vec![0]) } else { part.input.contents.clone() }
}

/// The command with which LLVM's bundler would make `output`; nothing is made. The file that it would make for the host's mark does not
/// exist, and is shown under a name that says so.
fn show_bundling(output: &Path, host: &Part<'_>, parts: &[Part<'_>], session: &Session) {
    let mark = temporary();
    let section = String::from_utf8_lossy(MAGIC);
    let mut words = vec![objcopy().display().to_string()];
    for part in parts {
        let file = if part.is_host { mark.display() } else { part.input.path.display() };
        words.push(format!("--add-section={section}{}={file}", part.id));
        words.push(format!("--set-section-flags={section}{}=readonly,exclude", part.id));
    }
    words.extend(["--".to_owned(), host.input.path.display().to_string(), output.display().to_string()]);
    show(&words, session);
}

/// The command with which LLVM's bundler would take the host's object out of `fat`.
pub(super) fn show_host(fat: &Path, session: &Session) {
    let remove = format!("--remove-section={}.*", String::from_utf8_lossy(MAGIC));
    let words: [&Path; 6] = [&objcopy(), "--regex".as_ref(), remove.as_ref(), "--".as_ref(), fat, &temporary()];
    show(&words.map(|word| word.display().to_string()), session);
}

fn objcopy() -> PathBuf {
    toolchain::beside_us_or_on_path("llvm-objcopy")
}

fn temporary() -> PathBuf {
    std::env::temp_dir().join("clang-offload-bundler-XXXXXX.tmp")
}

fn show(words: &[String], session: &Session) {
    let quoted: Vec<String> =
        words.iter().map(|word| format!("\"{}\"", word.replace('\\', "\\\\").replace('"', "\\\""))).collect();
    session.shell.line(&quoted.join(" "));
}
