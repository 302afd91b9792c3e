//! The cases of `tests/cases` (see its README for the format): commands, each with its expected
//! output.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use libtest_mimic::{Failed, Trial};

use crate::dry_run::shell_words;
use crate::kit::Image;
use crate::support::{
    LLVM, Outcome, Work, expect_equal, llvm, made, output, passed, root, text, with_llvm,
};

/// One test per case.
pub(crate) fn trials() -> Vec<Trial> {
    let mut files: Vec<PathBuf> = Vec::new();
    for folder in std::fs::read_dir(root().join("tests/cases"))
        .expect("tests/cases")
        .flatten()
    {
        let entries = std::fs::read_dir(folder.path())
            .into_iter()
            .flatten()
            .flatten();
        files.extend(
            entries
                .map(|entry| entry.path())
                .filter(|path| path.extension().is_some_and(|end| end == "case")),
        );
    }
    files.sort();
    let name = |file: &Path| {
        let folder = file
            .parent()
            .and_then(Path::file_name)
            .unwrap_or_default()
            .to_string_lossy();
        format!(
            "cases::{folder}::{}",
            file.file_stem().unwrap_or_default().to_string_lossy()
        )
    };
    files
        .into_iter()
        .map(|file| with_llvm(&name(&file), move || check(&file)))
        .collect()
}

fn check(file: &Path) -> Outcome {
    let written = std::fs::read_to_string(file)?;
    let mut case = Case::new();
    let mut actual = String::new();
    for (number, line) in written.lines().enumerate() {
        if ["|", "!", "= "].iter().any(|start| line.starts_with(start)) {
            continue;
        }
        let _ = writeln!(actual, "{line}");
        let place = || format!("{}:{}: {line}", file.display(), number + 1);
        let printed = case
            .line(line)
            .map_err(|failed| format!("{}\n{}", place(), failed.message().unwrap_or_default()))?;
        actual.push_str(&printed);
    }
    if std::env::var_os("BLESS").is_some_and(|value| value == "1") {
        std::fs::write(file, actual)?;
        return passed();
    }
    expect_equal(
        &format!("{} (BLESS=1 writes it anew)", file.display()),
        &written,
        &actual,
    )?;
    passed()
}

/// The state of a running case.
struct Case {
    work: Work,
    host: String,
    code: Option<String>,
    env: Vec<(String, String)>,
    files: HashMap<String, String>,
}

impl Case {
    fn new() -> Case {
        let work = Work::new();
        Case {
            work,
            host: "x86_64-unknown-linux-gnu".into(),
            code: None,
            env: Vec::new(),
            files: HashMap::new(),
        }
    }

    /// Executes one line of a case. Returns the output of a command in the format of a case.
    fn line(&mut self, line: &str) -> Result<String, Failed> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let named = || {
            rest.split_once(':')
                .map(|(name, value)| (name, value.trim()))
                .ok_or("no NAME:")
        };
        match word {
            "" | "#" => {}
            "$" => return self.command(rest),
            "stand-ins" => {
                let [clang, _] = self.work.stand_ins();
                self.work.reference_wrapper();
                self.env
                    .push(("OFFLD_CLANG".to_owned(), clang.display().to_string()));
            }
            "images" | "contents" => {
                let images = self.work.images()?.into_iter();
                let shown = images.map(|(name, contents)| match word {
                    "images" => format!("| {name}: {contents}\n"),
                    _ => format!("| {contents}\n"),
                });
                let shown = shown.collect();
                self.work.forget();
                return Ok(shown);
            }
            "host" => self.host = rest.to_owned(),
            "code" => self.code = Some(format!("{rest}\n")),
            "env" => {
                let (name, value) = rest.split_once('=').ok_or("no NAME=VALUE")?;
                self.env.push((name.to_owned(), self.stand_for(value)));
            }
            "fat" => {
                let (name, images) = named()?;
                let stem: String = name
                    .chars()
                    .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
                    .collect();
                let code = self
                    .code
                    .clone()
                    .unwrap_or_else(|| format!("int {stem};\n"));
                let words = images_of(images)?;
                self.work
                    .fat_for(&self.host, name, &as_images(&words), &code)?;
            }
            "pack" => {
                let (name, images) = named()?;
                let words = images_of(images)?;
                self.work.pack(name, &as_images(&words))?;
            }
            "archive" => {
                let (name, members) = named()?;
                self.work
                    .archive(name, &members.split_whitespace().collect::<Vec<_>>())?;
            }
            "file" | "tool" => {
                let (name, value) = named()?;
                let value = self.stand_for(value);
                let start = if word == "tool" { "#!/bin/sh\n" } else { "" };
                let contents = self
                    .files
                    .entry(name.to_owned())
                    .or_insert_with(|| start.to_owned());
                let _ = writeln!(contents, "{value}");
                if word == "tool" {
                    self.work.tool(name, contents)
                } else {
                    self.work.file(name, contents)
                };
            }
            _ => return Err(format!("`{word}` is no directive").into()),
        }
        Ok(String::new())
    }

    fn command(&self, line: &str) -> Result<String, Failed> {
        // Split the line first: replaced paths may contain spaces.
        let words: Vec<String> = shell_words(line)
            .iter()
            .map(|word| self.stand_for(word))
            .collect();
        let (program, args) = words.split_first().ok_or("no command")?;
        let program = [made().links.join(program), llvm(program)]
            .into_iter()
            .find(|path| path.exists())
            .unwrap_or(program.into());
        let program = if program == Path::new("offld") {
            crate::support::offld()
        } else {
            program
        };
        let mut command: Command = self.work.command(program);
        let envs = self.env.iter().map(|(name, value)| (name, value));
        let ended = output(
            command
                .args(args)
                .env("OFFLD_CLANG", llvm("clang"))
                .envs(envs),
        )?;
        let mut all = String::new();
        for (mark, bytes) in [('|', &ended.stdout), ('!', &ended.stderr)] {
            for line in self.with_placeholders(&text(bytes)).lines() {
                let _ = writeln!(all, "{}", format!("{mark} {line}").trim_end());
            }
        }
        match (ended.status.code(), ended.status.signal()) {
            (Some(0), _) => {}
            (Some(code), _) => drop(writeln!(all, "= {code}")),
            (None, signal) => drop(writeln!(all, "= signal {}", signal.unwrap_or_default())),
        }
        Ok(all)
    }

    /// The replacements for placeholders in capitals. If one value is part of another, the longer
    /// value comes first.
    fn meanings(&self) -> [(&'static str, String); 5] {
        let links = made().links.display().to_string();
        [
            ("WORK", self.work.path().display().to_string()),
            ("LINKS", links),
            ("LLVM", LLVM.to_owned()),
            ("OFFLD", crate::support::offld().display().to_string()),
            ("VERSION", env!("CARGO_PKG_VERSION").to_owned()),
        ]
    }

    fn stand_for(&self, text: &str) -> String {
        let in_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let mut out = String::new();
        let mut rest = text;
        while let Some(next) = rest.chars().next() {
            let word = &rest[..rest.find(|c| !in_word(c)).unwrap_or(rest.len())];
            let taken = if word.is_empty() {
                &rest[..next.len_utf8()]
            } else {
                word
            };
            match self.meanings().into_iter().find(|(name, _)| *name == word) {
                Some((_, meaning)) => out.push_str(&meaning),
                None => out.push_str(taken),
            }
            rest = &rest[taken.len()..];
        }
        out
    }

    fn with_placeholders(&self, text: &str) -> String {
        let mut text = without_temp(text, &format!("{}/tmp/offld-", self.work.path().display()));
        if let Ok(real) = crate::support::offld().canonicalize() {
            text = text.replace(&real.display().to_string(), "OFFLD");
        }
        for (name, meaning) in self.meanings() {
            let wanted = if name == "VERSION" {
                format!("offld {meaning}")
            } else {
                meaning
            };
            text = text.replace(
                &wanted,
                &if name == "VERSION" {
                    format!("offld {name}")
                } else {
                    name.to_owned()
                },
            );
        }
        text
    }
}

/// Replaces the temporary directory by `TEMP`. Its name ends with six random letters.
fn without_temp(text: &str, folder: &str) -> String {
    let mut parts = text.split(folder);
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        text + "TEMP" + part.get(6..).unwrap_or_default()
    })
}

/// Parses triple, architecture, kind and bytes of each image.
fn images_of(text: &str) -> Result<Vec<[String; 4]>, Failed> {
    let one = |image: &str| {
        let fields = shell_words(image);
        <[String; 4]>::try_from(fields)
            .map_err(|fields| format!("`{}`: not TRIPLE ARCH KIND BYTES", fields.join(" ")).into())
    };
    text.split(',')
        .filter(|image| !image.trim().is_empty())
        .map(one)
        .collect()
}

fn as_images(fields: &[[String; 4]]) -> Vec<Image<'_>> {
    fields
        .iter()
        .map(|[triple, arch, kind, bytes]| Image {
            triple,
            arch,
            kind,
            bytes: bytes.as_bytes(),
        })
        .collect()
}
