//! `offld check`: registrations compared with those that the runtimes receive, answers compared
//! with the runtimes' behaviour, sabotaged files, devices, and output.

mod agreement;
mod devices;
pub(crate) mod modules;
mod output;
mod sabotage;

use std::path::Path;

use libtest_mimic::{Failed, Trial};
use serde_json::Value;

use super::support::{OFFLOAD, Work, expect_equal, llvm, made, output, run, shown, text};

pub(crate) fn trials() -> Vec<Trial> {
    trials_of! { agreement devices modules output sabotage }
}

/// The report of `offld check --json`.
struct Report {
    json: Value,
    /// The exit status.
    status: i32,
}

fn check<'a>(work: &Work, args: impl IntoIterator<Item = &'a str>) -> Result<Report, Failed> {
    let mut command = work.command(crate::support::offld());
    command.args(["check", "--json"]).args(args);
    let ended = output(&mut command)?;
    let json: Value = serde_json::from_slice(&ended.stdout)
        .map_err(|error| format!("{error}\n{}", shown(&command, &ended)))?;
    expect_equal("schema", "1", &json["schema"].to_string())?;
    let status = ended.status.code().unwrap_or(-1);
    let of_answer = match json["answer"].as_str().unwrap_or_default() {
        "yes" => 0,
        "unreadable" => 2,
        _ => 1,
    };
    if status == of_answer {
        Ok(Report { json, status })
    } else {
        Err(shown(&command, &ended).into())
    }
}

impl Report {
    /// The overall answer and each finding that is not yes, as lines without duplicates.
    fn lines(&self) -> String {
        let mut lines = vec![self.json["answer"].as_str().unwrap_or_default().to_owned()];
        for file in list(&self.json["files"]) {
            let text_of =
                |value: &Value, name: &str| value[name].as_str().unwrap_or_default().to_owned();
            let deciding = list(&file["findings"])
                .iter()
                .filter(|one| one["answer"] != "yes");
            lines.extend(
                deciding.map(|one| format!("{} {}", text_of(one, "what"), text_of(one, "answer"))),
            );
        }
        lines.dedup();
        lines.iter().map(|line| format!("{line}\n")).collect()
    }

    /// Fails unless the report has a finding of this kind and answer whose text contains `part`.
    fn expect(&self, what: &str, answer: &str, part: &str) -> Result<(), Failed> {
        let files = list(&self.json["files"]);
        let mut findings = files.iter().flat_map(|file| list(&file["findings"]));
        let is_it = |one: &Value| {
            one["what"] == what
                && one["answer"] == answer
                && one["text"].as_str().unwrap_or_default().contains(part)
        };
        if findings.any(is_it) {
            Ok(())
        } else {
            Err(format!(
                "no {what} ({answer}) with `{part}` in\n{:#}",
                self.json["files"]
            )
            .into())
        }
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// The source of a program with two kernels and a variable.
const SOURCE: &str = "#include <stdio.h>\n#pragma omp declare target\nint table[4];\n#pragma omp end declare target\n\
    int main(void) {\n  int x = 0;\n#pragma omp target map(tofrom : x)\n  { x = 42; table[1] = 3; }\n#pragma omp target map(tofrom : x)\n  \
    { x += table[1]; }\n  printf(\"%d\\n\", x);\n  return x != 45;\n}\n";

/// Compiles [`SOURCE`] with the host as the device.
fn object(work: &Work) -> Result<(), Failed> {
    work.file("main.c", SOURCE);
    run(work
        .command(llvm("clang"))
        .args(OFFLOAD)
        .args(["-O1", "-fPIC", "-c", "main.c"]))?;
    Ok(())
}

/// Links the object with offld and these arguments.
fn program(work: &Work, name: &str, args: &[&str]) -> Result<(), Failed> {
    let mut link = work.command(llvm("clang"));
    link.arg("-B")
        .arg(&made().links)
        .args(OFFLOAD)
        .args(["main.o", "-Wl,-rpath,/usr/lib/llvm-22/lib", "-o", name])
        .args(args);
    run(&mut link)?;
    Ok(())
}

/// Copies a file with changed bytes.
fn change(work: &Work, name: &str, to: &str, how: impl FnOnce(&mut Vec<u8>)) -> Result<(), Failed> {
    let mut bytes = std::fs::read(work.path().join(name))?;
    how(&mut bytes);
    std::fs::write(work.path().join(to), bytes)?;
    std::fs::set_permissions(
        work.path().join(to),
        std::fs::metadata(work.path().join(name))?.permissions(),
    )?;
    Ok(())
}

/// The offset of the first `part` in `bytes`.
fn find(bytes: &[u8], part: &[u8]) -> usize {
    bytes
        .windows(part.len())
        .position(|window| window == part)
        .unwrap_or_else(|| panic!("no {}", text(part)))
}

/// The value of a number in a report.
fn number(value: &Value) -> usize {
    value
        .as_u64()
        .and_then(|value| usize::try_from(value).ok())
        .unwrap_or_else(|| panic!("{value} is no number"))
}

/// The names of the ELF files in a directory.
fn elf_files(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("a folder").flatten();
    let names = entries.filter(|entry| {
        std::fs::read(entry.path()).is_ok_and(|bytes| bytes.starts_with(b"\x7fELF"))
    });
    let mut names: Vec<String> = names
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}
