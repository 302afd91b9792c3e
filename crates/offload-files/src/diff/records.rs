//! The kernels of a build: read from its files, or from a list that an earlier run saved.

use std::collections::{BTreeMap, HashMap};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::Request;
use crate::contents::report::{FileReport, Image};
use crate::contents::{self, Reader, folders};
use offld_system::atomic_file;
use offld_system::io::file_slice::FileSlice;
use offld_system::progress::Meter;
use offld_system::session::Session;
use offld_system::threads;
use offload_formats::kernels::code::CodeDigest;
use offload_formats::kernels::occupancy::occupancy;
use offload_formats::kernels::{Kernel, SourceName};
use offload_formats::stable_names::without_file_ids;

/// The format name in a saved list.
const FORMAT: &str = "offld-kernels";
/// The version of the format.
const SCHEMA: u32 = 1;
/// The first bytes of a saved list, which distinguish it from files with device code.
const START: &[u8] = b"{\"format\":\"offld-kernels\"";

/// The kernels of a build.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Records {
    /// The files, as given by the caller.
    pub(super) files: Vec<String>,
    /// The number of device images.
    pub(super) images: u64,
    /// The kernels, in the order of files and images.
    pub(super) list: Vec<Record>,
    /// Errors of reading the files.
    #[serde(skip)]
    pub(super) errors: Vec<String>,
}

/// A kernel of an image, or an image whose kernels are unknown.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Record {
    /// The architecture, by the name in reports.
    pub(super) arch: String,
    /// The name in the image. Empty for an image whose kernels are unknown.
    pub(super) name: String,
    /// The file or member that contains the image.
    pub(super) place: String,
    /// The digest of the code; none if it is unknown.
    pub(super) code: Option<String>,
    /// The use of resources, by the names of [`Kernel`]'s fields, and the occupancy.
    pub(super) facts: BTreeMap<String, u64>,
    /// The image, if its code will be disassembled.
    #[serde(skip)]
    pub(super) image: Option<FileSlice>,
}

/// A kernel to disassemble.
#[derive(Debug, Clone)]
pub(super) struct Disassembled {
    /// The image.
    pub(super) image: FileSlice,
    /// The name in the image.
    pub(super) name: String,
}

impl Record {
    /// The name without the parts that depend on the location of source files.
    pub(super) fn key(&self) -> String {
        String::from_utf8_lossy(&without_file_ids(self.name.as_bytes())).into_owned()
    }

    /// The kernel to disassemble, if that was requested.
    pub(super) fn disassembled(&self) -> Option<Disassembled> {
        let (image, name) = (self.image.clone()?, self.name.clone());
        Some(Disassembled { image, name })
    }

    /// The name in the source, or else the name in the image.
    pub(super) fn shown(&self) -> String {
        match SourceName::of(&self.name) {
            Some(name) => name.to_string(),
            None if self.name.is_empty() => format!("(image in {})", self.place),
            None => self.name.clone(),
        }
    }
}

/// A saved list.
#[derive(Serialize, Deserialize)]
struct Saved {
    format: String,
    schema: u32,
    generator: String,
    #[serde(flatten)]
    records: Records,
}

/// Writes the kernels of the build at `request.new` to `path`, atomically, for later comparisons.
///
/// # Errors
/// The build cannot be read, or the list cannot be written.
pub fn save(request: &Request, path: &Path, session: &Session) -> Result<()> {
    let records = read(&request.new, request, session)?;
    if let Some(error) = records.errors.first() {
        bail!("{error}");
    }
    let saved = Saved {
        format: FORMAT.to_owned(),
        schema: SCHEMA,
        generator: format!("offld {}", env!("CARGO_PKG_VERSION")),
        records,
    };
    let mut text = serde_json::to_vec(&saved).context("cannot write the kernels as JSON")?;
    text.push(b'\n');
    atomic_file::replace(path, |file| Ok(file.write_all(&text)?))
        .with_context(|| format!("cannot write `{}`", path.display()))
}

/// Reads the kernels of a build.
///
/// # Errors
/// A saved list cannot be read. Errors in files are in the result.
pub(super) fn read(paths: &[PathBuf], request: &Request, session: &Session) -> Result<Records> {
    if let [path] = paths
        && let Some(saved) = load(path)?
    {
        return Ok(saved);
    }
    let (found, faults) = folders::selected(paths, &request.selection, session);
    let options = contents::Options {
        kernels: true,
        code: true,
        packs: true,
        keep_bytes: request.changed_code,
        max_unpacked: request.max_unpacked,
        selection: std::sync::Arc::clone(&request.selection),
        ..contents::Options::default()
    };
    let meter = Meter::new(
        session.shell.is_terminal(),
        found.iter().map(|found| found.size).sum(),
    );
    let reader = Reader::new(options, session).shown_by(&meter);
    let files: Vec<FileReport> = threads::in_parallel(|| {
        let each = found
            .par_iter()
            .filter_map(|found| Some(reader.found(found)).filter(|file| found.is_wanted(file)));
        each.collect()
    });
    drop(meter);
    session.signals.check()?;
    let mut records = Records::default();
    for file in files {
        records.add(file, request.changed_code);
    }
    let faults = faults
        .iter()
        .map(|(path, error)| format!("{}: {error:#}", path.display()));
    records.errors.extend(faults);
    Ok(records)
}

/// Whether the file at `path` starts like a saved list.
pub(crate) fn is_saved(path: &Path) -> std::io::Result<bool> {
    if path == Path::new("-") || path.is_dir() {
        return Ok(false);
    }
    let mut start = [0; START.len()];
    let mut file = std::fs::File::open(path)?;
    Ok(file.read_exact(&mut start).is_ok() && start == START)
}

/// The list in the file at `path`; none if it has a different format.
fn load(path: &Path) -> Result<Option<Records>> {
    let context = || format!("`{}`", path.display());
    if !is_saved(path).with_context(context)? {
        return Ok(None);
    }
    let text = std::fs::read(path).with_context(context)?;
    let saved: Saved = serde_json::from_slice(&text)
        .with_context(|| format!("`{}`: not a file that --save writes", path.display()))?;
    if saved.format != FORMAT || saved.schema != SCHEMA {
        bail!(
            "`{}`: kernels of version {}, but this offld reads version {SCHEMA}",
            path.display(),
            saved.schema
        );
    }
    Ok(Some(saved.records))
}

impl Records {
    /// Adds the kernels of a file; `with_images`, to disassemble them.
    fn add(&mut self, file: FileReport, with_images: bool) {
        let FileReport {
            file: name,
            images,
            errors,
            ..
        } = file;
        self.errors.extend(errors);
        for image in images
            .iter()
            .filter(|image| image.is_device() && image.size > 0)
        {
            self.images += 1;
            self.add_image(&name, image, with_images);
        }
        self.files.push(name);
    }

    fn add_image(&mut self, file: &str, image: &Image, with_images: bool) {
        let place = match image.members.last() {
            Some(member) => member.clone(),
            None => file.to_owned(),
        };
        let record = |name: &str, code: Option<String>, facts: BTreeMap<String, u64>| Record {
            arch: image.arch(),
            name: name.to_owned(),
            place: place.clone(),
            code,
            facts,
            image: image.piece.clone().filter(|_| with_images),
        };
        let none = HashMap::new();
        let text_of = |code: &CodeDigest| format!("{:032x}", code.0);
        let codes = image.codes.as_ref().unwrap_or(&none);
        match &image.kernels {
            Some(kernels) if !kernels.is_empty() => {
                for kernel in kernels {
                    let code = codes
                        .get(&kernel.name)
                        .map(|code| format!("{:032x}", code.0));
                    let facts = facts(kernel, &image.target);
                    self.list.push(record(&kernel.name, code, facts));
                }
            }
            // PTX, about whose kernels no numbers are known.
            None if !codes.is_empty() => {
                let mut names: Vec<&String> = codes.keys().collect();
                names.sort_unstable();
                for name in names {
                    let code = codes.get(name).map(text_of);
                    self.list.push(record(name, code, BTreeMap::new()));
                }
            }
            // An image without kernels, or one whose kernels cannot be listed.
            _ => {
                let code = image.sha256.clone();
                self.list.push(record("", code, BTreeMap::new()));
            }
        }
    }
}

/// The names of the facts that reports compare, in their order.
pub(crate) const FACTS: [&str; 15] = [
    "registers",
    "vgprs",
    "agprs",
    "sgprs",
    "spilled_vgprs",
    "spilled_sgprs",
    "shared",
    "scratch",
    "barriers",
    "arguments",
    "max_workgroup",
    "wave_size",
    "workgroup_processor_mode",
    "occupancy",
    "code_size",
];

/// The facts about a kernel, by name.
fn facts(kernel: &Kernel, target: &str) -> BTreeMap<String, u64> {
    let value = |fact: &str| match fact {
        "registers" => kernel.registers,
        "vgprs" => kernel.vgprs,
        "agprs" => kernel.agprs,
        "sgprs" => kernel.sgprs,
        "spilled_vgprs" => kernel.spilled_vgprs,
        "spilled_sgprs" => kernel.spilled_sgprs,
        "shared" => kernel.shared,
        "scratch" => kernel.scratch,
        "barriers" => kernel.barriers,
        "arguments" => kernel.arguments,
        "max_workgroup" => kernel.max_workgroup,
        "wave_size" => kernel.wave_size,
        "workgroup_processor_mode" => kernel.workgroup_processor_mode,
        "occupancy" => occupancy(kernel, target).map(|occupancy| occupancy.running),
        _ => kernel.code_size,
    };
    FACTS
        .into_iter()
        .filter_map(|fact| Some((fact.to_owned(), value(fact)?)))
        .collect()
}
