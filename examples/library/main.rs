//! Lists the device images of a file, and extracts them into a new directory if one is given:
//! `library FILE [DIR]`.

use std::ffi::OsString;
use std::fs::File;
use std::path::Path;
use std::process::ExitCode;

use offld::{Error, InspectOptions};

fn list(file: &Path, folder: Option<&Path>) -> Result<ExitCode, Error> {
    let report = offld::inspect(file, &InspectOptions::default())?;
    folder.map(std::fs::create_dir_all).transpose()?;
    for image in report.images.iter().filter(|image| image.is_device()) {
        let (kinds, place) = (
            image.kinds.join("+"),
            image.section.as_deref().unwrap_or("-"),
        );
        println!(
            "{} {kinds} {} {} {} {place} {}",
            image.index, image.triple, image.target, image.format, image.size
        );
        if let Some(folder) = folder {
            let mut out =
                File::create_new(folder.join(format!("{}.{}", image.index, image.format)))?;
            image.write_to(&mut out)?;
        }
    }
    report.errors.iter().for_each(|error| eprintln!("{error}"));
    Ok(if report.errors.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let [file, folder @ ..] = &arguments[..] else {
        eprintln!("usage: library FILE [DIR]");
        return ExitCode::FAILURE;
    };
    list(Path::new(file), folder.first().map(Path::new)).unwrap_or_else(|error| {
        eprintln!("{error}");
        ExitCode::FAILURE
    })
}
