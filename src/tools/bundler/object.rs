//! Bundles into the sections of a host object (docs/spec/containers.md 2.10). LLVM runs
//! llvm-objcopy for this. offld writes the object itself, and `-###` only prints objcopy's command
//! line.

use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::Request;
use super::pack::CodeObject;
use crate::formats::bundle::MAGIC;
use crate::formats::bundled_object::{self, NewSection};
use crate::io::file_slice::FileSlice;
use crate::io::outputs::{Outputs, io_error};
use crate::io::rope::Rope;
use crate::sys::session::Session;
use crate::sys::toolchain;

/// Writes the object file `host` with a section for each of `objects`. The host's own section is a
/// mark of one zero byte.
pub(super) fn bundle(
    request: &Request,
    session: &Session,
    output: &Path,
    host: &CodeObject<'_>,
    objects: &[CodeObject<'_>],
) -> Result<()> {
    if request.compression.is_some() {
        let name = output.display();
        session
            .shell
            .warn(&format!("-compress has no effect on '{name}': bundles in the sections of an object are not compressed"));
    }
    if request.show_commands {
        show_bundling(output, host, objects, session);
        return Ok(());
    }
    let context = |error: io::Error| io_error(output, &error);
    let object = &host.input.contents;
    let payloads: Vec<FileSlice> = objects.iter().map(payload).collect();
    let sections: Vec<NewSection<'_>> = objects
        .iter()
        .zip(&payloads)
        .map(|(object, piece)| NewSection {
            id: &object.id,
            size: piece.size(),
        })
        .collect();
    let parts = bundled_object::with_sections(object.bytes(), &sections)
        .with_context(|| host.input.path.display().to_string())?;
    let whole = Rope::of_parts(object, parts, payloads.into_iter().map(Rope::from))?;
    let mut outputs = Outputs::new(session);
    let mut made = outputs.create_anew_or_stdout(output)?;
    if let Ok(about) = std::fs::metadata(&host.input.path) {
        // objcopy gives its output the mode of its input.
        made.file()
            .set_permissions(about.permissions())
            .map_err(context)?;
    }
    whole.copy_to(&mut made).map_err(context)?;
    outputs.commit()
}

fn payload(object: &CodeObject<'_>) -> FileSlice {
    if object.is_host {
        FileSlice::owned(vec![0])
    } else {
        object.input.contents.clone()
    }
}

/// Prints the command with which LLVM's bundler would make `output`. LLVM creates a temporary file
/// for the host's mark. `XXXXXX` replaces the random part of its name.
fn show_bundling(
    output: &Path,
    host: &CodeObject<'_>,
    objects: &[CodeObject<'_>],
    session: &Session,
) {
    let mark = temporary();
    let section = String::from_utf8_lossy(MAGIC);
    let mut arguments = vec![objcopy().display().to_string()];
    for object in objects {
        let file = if object.is_host {
            mark.display()
        } else {
            object.input.path.display()
        };
        arguments.push(format!("--add-section={section}{}={file}", object.id));
        arguments.push(format!(
            "--set-section-flags={section}{}=readonly,exclude",
            object.id
        ));
    }
    arguments.extend([
        "--".to_owned(),
        host.input.path.display().to_string(),
        output.display().to_string(),
    ]);
    show(&arguments, session);
}

/// Prints the command with which LLVM's bundler would extract the host object from `fat`.
pub(super) fn show_host(fat: &Path, session: &Session) {
    let remove = format!("--remove-section={}.*", String::from_utf8_lossy(MAGIC));
    let arguments: [&Path; 6] = [
        &objcopy(),
        "--regex".as_ref(),
        remove.as_ref(),
        "--".as_ref(),
        fat,
        &temporary(),
    ];
    show(
        &arguments.map(|argument| argument.display().to_string()),
        session,
    );
}

fn objcopy() -> PathBuf {
    toolchain::beside_us_or_on_path("llvm-objcopy")
}

fn temporary() -> PathBuf {
    std::env::temp_dir().join("clang-offload-bundler-XXXXXX.tmp")
}

fn show(arguments: &[String], session: &Session) {
    let quoted: Vec<String> = arguments
        .iter()
        .map(|argument| {
            format!(
                "\"{}\"",
                argument.replace('\\', "\\\\").replace('"', "\\\"")
            )
        })
        .collect();
    session.shell.line(&quoted.join(" "));
}
