//! Bundling into the sections of a host object (docs/spec/containers.md 2.10). LLVM runs llvm-objcopy for this; here the object is
//! written directly, and objcopy's commands are only shown (`-###`).

use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::Request;
use super::container::rewritten;
use super::input::CodeObject;
use crate::formats::bundle::MAGIC;
use crate::formats::fat_object::{self, NewSection};
use crate::io::outputs::{Outputs, io_error};
use crate::io::piece::Piece;
use crate::sys::session::Session;
use crate::sys::toolchain;

/// Writes `host`, an object file, with a section for each of `objects`. The host's own section is a mark: one zero byte.
pub(super) fn bundle(
    request: &Request,
    session: &Session,
    output: &Path,
    host: &CodeObject<'_>,
    objects: &[CodeObject<'_>],
) -> Result<()> {
    if request.compression.is_some() {
        let named = output.display();
        session
            .shell
            .warn(&format!("-compress has no effect on '{named}': bundles in the sections of an object are not compressed"));
    }
    if request.show_commands {
        show_bundling(output, host, objects, session);
        return Ok(());
    }
    let context = |error: io::Error| io_error(output, &error);
    let object = &host.input.contents;
    let payloads: Vec<Piece> = objects.iter().map(payload).collect();
    let sections: Vec<NewSection<'_>> =
        objects.iter().zip(&payloads).map(|(object, piece)| NewSection { id: &object.id, size: piece.size() }).collect();
    let plan = fat_object::with_sections(object.bytes(), &sections);
    let whole = rewritten(plan.with_context(|| host.input.path.display().to_string())?, object, &payloads)?;
    let mut outputs = Outputs::new(session);
    let mut made = outputs.create_or_stdout(output)?;
    if let Ok(about) = std::fs::metadata(&host.input.path) {
        // objcopy gives its output the mode of its input.
        made.file().set_permissions(about.permissions()).map_err(context)?;
    }
    whole.copy_to(&mut made).map_err(context)?;
    outputs.commit()
}

fn payload(object: &CodeObject<'_>) -> Piece {
    if object.is_host { Piece::owned(vec![0]) } else { object.input.contents.clone() }
}

/// Prints the command with which LLVM's bundler would make `output`. LLVM makes a temporary file for the host's mark, whose name is
/// random; `XXXXXX` stands for that part.
fn show_bundling(output: &Path, host: &CodeObject<'_>, objects: &[CodeObject<'_>], session: &Session) {
    let mark = temporary();
    let section = String::from_utf8_lossy(MAGIC);
    let mut words = vec![objcopy().display().to_string()];
    for object in objects {
        let file = if object.is_host { mark.display() } else { object.input.path.display() };
        words.push(format!("--add-section={section}{}={file}", object.id));
        words.push(format!("--set-section-flags={section}{}=readonly,exclude", object.id));
    }
    words.extend(["--".to_owned(), host.input.path.display().to_string(), output.display().to_string()]);
    show(&words, session);
}

/// Prints the command with which LLVM's bundler would take the host's object out of `fat`.
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
