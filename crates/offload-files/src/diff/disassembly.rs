//! Differences in the machine code of kernels, as lines of disassembly. `llvm-objdump` disassembles
//! code for AMD, and `nvdisasm` code for NVIDIA; PTX is text.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use object::elf;
use similar::TextDiff;

use super::records::Disassembled;
use super::report::Report;
use offld_system::io::file_slice::FileSlice;
use offld_system::run::beside_us_or_on_path;
use offld_system::run::stdout_of;
use offld_system::session::Session;
use offload_formats::elf::raw::FileHeader;
use offload_formats::magic;

/// The number of kernels that are disassembled: a report has to stay readable.
const KERNELS: usize = 20;
/// The number of lines that are shown of each.
const LINES: usize = 60;
/// The number of equal lines around each difference.
const CONTEXT: usize = 2;

/// Adds the differences in machine code to the kernels of `report` whose code changed. Needs the
/// images in the report.
///
/// # Errors
/// No program can disassemble the code, or a signal arrived.
pub(super) fn add(report: &mut Report, session: &Session) -> Result<()> {
    let changes = report.archs.iter_mut().flat_map(|arch| &mut arch.changes);
    let changed = changes.filter(|change| change.code_changed == Some(true));
    for change in changed.take(KERNELS) {
        session.signals.check()?;
        let Some((old, new)) = change.images.take() else {
            continue;
        };
        let (old, new) = (lines(&old)?, lines(&new)?);
        let diff = TextDiff::from_lines(&old, &new)
            .unified_diff()
            .context_radius(CONTEXT)
            .to_string();
        change.code_diff = Some(shortened(&diff)).filter(|diff| !diff.is_empty());
    }
    Ok(())
}

/// The first lines, and how many more there are.
fn shortened(diff: &str) -> String {
    let mut lines = diff.lines();
    let mut text = String::new();
    for line in lines.by_ref().take(LINES) {
        text.push_str(line);
        text.push('\n');
    }
    match lines.count() {
        0 => text,
        more => format!("{text}… {more} more lines\n"),
    }
}

/// The code of a kernel, an instruction on each line, without addresses and encodings.
fn lines(code: &Disassembled) -> Result<String> {
    let Disassembled { image, name } = code;
    let bytes = image.bytes();
    match FileHeader::read(bytes) {
        Ok((_, header)) if header.machine == elf::EM_CUDA => nvdisasm(image, name),
        Ok(_) => objdump(image, name),
        Err(_) if bytes.starts_with(&magic::ELF) => objdump(image, name),
        Err(_) => Ok(ptx(&String::from_utf8_lossy(bytes), name)),
    }
}

fn objdump(image: &FileSlice, name: &str) -> Result<String> {
    let program = ["llvm-objdump", "llvm-objdump-22"]
        .map(beside_us_or_on_path)
        .into_iter()
        .find(|program| program.is_absolute())
        .context("--changed-code needs llvm-objdump on PATH for code for AMD")?;
    let symbol = format!("--disassemble-symbols={name}");
    let text = disassembled(&program, &["-d", "--no-show-raw-insn", &symbol], image)?;
    let instructions = text.lines().filter(|line| line.starts_with('\t'));
    let without_address = |line: &str| {
        let end = line.find("//").unwrap_or(line.len());
        format!("{}\n", line.get(..end).unwrap_or(line).trim())
    };
    Ok(instructions.map(without_address).collect())
}

fn nvdisasm(image: &FileSlice, name: &str) -> Result<String> {
    let in_toolkit = std::env::var_os("CUDA_PATH")
        .map(|toolkit| PathBuf::from(toolkit).join("bin/nvdisasm"))
        .filter(|program| program.is_file());
    let program = in_toolkit
        .or_else(|| Some(beside_us_or_on_path("nvdisasm")).filter(|program| program.is_absolute()))
        .context("--changed-code needs nvdisasm on PATH or in CUDA_PATH for code for NVIDIA")?;
    let text = disassembled(&program, &["-c"], image)?;
    let start = format!(".text.{name}:");
    let own = text.lines().skip_while(|line| *line != start).skip(1);
    let own = own.take_while(|line| !line.starts_with("//-----"));
    Ok(own
        .filter(|line| !line.trim_start().starts_with('.'))
        .map(without_comments)
        .filter(|line| line.len() > 1)
        .collect())
}

/// An instruction without the comments `/*0010*/`.
fn without_comments(line: &str) -> String {
    let mut text = String::new();
    let mut rest = line;
    while let Some((before, comment)) = rest.split_once("/*") {
        text.push_str(before);
        rest = comment.split_once("*/").map_or("", |(_, after)| after);
    }
    text.push_str(rest);
    format!("{}\n", text.trim())
}

/// The text of a kernel in PTX.
fn ptx(text: &str, name: &str) -> String {
    let is_start = |line: &&str| {
        let after = line
            .split_once(".entry")
            .map(|(_, after)| after.trim_start());
        let after = after.and_then(|after| after.strip_prefix(name));
        after.is_some_and(|after| after.is_empty() || after.starts_with(['(', ' ']))
    };
    let mut own = text.lines().skip_while(|line| !is_start(line));
    let mut code = String::new();
    for line in own.by_ref() {
        code.push_str(line.trim_end());
        code.push('\n');
        if line.starts_with('}') {
            break;
        }
    }
    code
}

/// The output of a disassembler for an image.
fn disassembled(program: &std::path::Path, args: &[&str], image: &FileSlice) -> Result<String> {
    let mut file = tempfile::NamedTempFile::new().context("cannot create a temporary file")?;
    file.write_all(image.bytes())
        .context("cannot write a temporary file")?;
    let Some(path) = file.path().to_str() else {
        bail!("the name of the directory for temporary files is not UTF-8");
    };
    let args: Vec<&str> = args.iter().copied().chain([path]).collect();
    stdout_of(program, &args)
        .with_context(|| format!("{} cannot disassemble the code", program.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_have_no_addresses() {
        assert_eq!(
            without_comments("        /*0010*/              MOV R1, c[0x0][0x28] ;   /* 0x00 */"),
            "MOV R1, c[0x0][0x28] ;\n"
        );
        assert_eq!(without_comments("/* open"), "\n");
    }

    #[test]
    fn a_kernel_of_ptx_ends_with_its_brace() {
        let text = ".visible .entry ab(\n)\n{\n ret;\n}\n.visible .entry a(\n)\n{\n exit;\n}\n.func b()\n{\n}\n";
        assert_eq!(ptx(text, "a"), ".visible .entry a(\n)\n{\n exit;\n}\n");
        assert_eq!(ptx(text, "c"), "");
    }

    #[test]
    fn long_differences_are_shortened() {
        let long = "+a\n".repeat(LINES + 2);
        let short = shortened(&long);
        assert_eq!(short.lines().count(), LINES + 1);
        assert!(short.ends_with("… 2 more lines\n"));
        assert_eq!(shortened("+a\n"), "+a\n");
    }
}
