//! Moves the HIP code of programs, libraries and wheels into kpack archives (`offld split --kpack`),
//! and back (`offld merge`). For each file, a recipe below the directory `.kpack` has the
//! data that `offld merge` needs to restore the file byte for byte.

mod wheels;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{Read, Write};
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use crate::contents::packs::split_key;
use crate::contents::{self, Reader};
use crate::edit::compress::zstd_frame;
use crate::edit::kpack_host;
use crate::edit::split_manifest::{
    Checksum, KpackRecipe, kpack_recipe, read_host, read_kpack_recipe,
};
use crate::merge::parts::{Check, Joined, restore};
use crate::split;
use offld_system::io::file_slice::{FileSlice, Spool};
use offld_system::io::rope::Rope;
use offld_system::session::Session;
use offload_formats::kpack::{
    self, Archive, Code, Head, LEVEL, NewEntry, PLACEHOLDER, Reference, Scheme,
};
use offload_formats::magic::{ByteKind, byte_kind};
use offload_formats::zip::is_zip;

pub use wheels::is_device_wheel;

/// The directory of archives in an installation.
pub const DIRECTORY: &str = ".kpack";
/// The end of the names of recipes.
pub const RECIPE: &str = ".recipe";
/// The largest window of zstd for a patch, as a base-2 logarithm: 2 GiB.
const WINDOW: u32 = 31;

/// A file of an installation.
#[derive(Debug, Clone)]
pub struct Source {
    /// Its path on disk.
    pub path: PathBuf,
    /// Its path in the installation, with slashes: `lib/librccl.so`.
    pub binary: String,
}

/// Programs, libraries and wheels whose HIP code is in archives.
#[derive(Debug, Default)]
pub struct Packed {
    /// The files that changed.
    pub hosts: Vec<Host>,
    /// The archives, by target (`gfx90a`, `gfx90a:xnack+`).
    pub archives: Vec<(String, Rope)>,
}

/// A file whose HIP code is in archives.
#[derive(Debug)]
pub struct Host {
    /// The index of its source.
    pub source: usize,
    /// Its new bytes.
    pub bytes: Rope,
    /// The recipe that restores the old bytes.
    pub recipe: Rope,
    /// The number of its code objects.
    pub images: usize,
    /// The names and bytes of the device wheels, if the file is a wheel.
    pub device_wheels: Vec<(String, Rope)>,
}

/// The file name of an archive.
pub fn archive_name(group: &str, arch: &str) -> String {
    format!("{group}_{arch}.kpack")
}

/// Whether the file at `path` has the name of an archive of `group`.
pub fn is_of_group(path: &Path, group: &str) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    let rest = name.and_then(|name| name.strip_prefix(group)?.strip_prefix('_'));
    let arch = rest.and_then(|rest| rest.strip_suffix(".kpack"));
    // `x_gfx90a_gfx942.kpack` is an archive of the group `x_gfx90a`.
    arch.is_some_and(|arch| arch.starts_with("gfx") && !arch.contains('_'))
}

/// Moves the HIP code of `sources` into archives. The names of the archives start with `group`; those
/// of a wheel's archives start with the name of its distribution. Files without HIP code are not in
/// the result.
///
/// # Errors
/// A file cannot be read, or its HIP code cannot be moved.
pub fn split(
    sources: &[Source],
    group: &str,
    session: &Session,
    spool: &mut Spool,
) -> Result<Packed> {
    let mut packed = Packed::default();
    let mut archives = Archives::default();
    for (index, source) in sources.iter().enumerate() {
        session.signals.check()?;
        let piece =
            FileSlice::try_open(&source.path).with_context(|| source.path.display().to_string())?;
        let host = match byte_kind(piece.bytes(), true) {
            ByteKind::Object(_) => {
                one(index, source, &piece, group, &mut archives, session, spool)?
            }
            ByteKind::Zip => wheels::split(index, source, &piece, session, spool)?,
            _ => None,
        };
        packed.hosts.extend(host);
    }
    packed.archives = archives.finish(group)?;
    Ok(packed)
}

fn one(
    index: usize,
    source: &Source,
    piece: &FileSlice,
    group: &str,
    archives: &mut Archives,
    session: &Session,
    spool: &mut Spool,
) -> Result<Option<Host>> {
    let up = "../".repeat(source.binary.matches('/').count());
    let reference = Reference {
        binary: source.binary.clone(),
        search_paths: vec![format!(
            "{up}{DIRECTORY}/{}",
            archive_name(group, PLACEHOLDER)
        )],
    };
    let Some(Moved { host, images }) =
        moved(&source.path, piece, &reference, archives, session, spool)?
    else {
        return Ok(None);
    };
    let half = split::without_images(&source.path, piece, &images, session, spool)?;
    Ok(Some(Host {
        source: index,
        recipe: recipe_of(&source.binary, half, &host, Vec::new(), spool)?,
        bytes: host.into(),
        images: images.len(),
        device_wheels: Vec::new(),
    }))
}

/// A program without its HIP code.
struct Moved {
    host: FileSlice,
    /// The numbers of the images that are in archives.
    images: Vec<usize>,
}

/// Moves the HIP code of the program `piece`, which is at `path`, into `archives`. Returns `None` if
/// it has none.
fn moved(
    path: &Path,
    piece: &FileSlice,
    reference: &Reference,
    archives: &mut Archives,
    session: &Session,
    spool: &mut Spool,
) -> Result<Option<Moved>> {
    let options = contents::Options {
        keep_bytes: true,
        registered: true,
        alone: true,
        ..contents::Options::default()
    };
    let report = Reader::new(options, session).opened(path, piece.clone());
    let Some(program) = kpack_host::find(path, piece, &report)? else {
        return Ok(None);
    };
    for code in &program.codes {
        let bytes = code
            .image
            .piece
            .as_ref()
            .context("an image without bytes")?;
        let key = format!("{}#{}", reference.binary, code.number);
        archives.add(key, &code.image.target, bytes, spool)?;
    }
    let host = program
        .with_reference(reference, spool)?
        .into_piece(spool)?;
    let mut images: Vec<usize> = program.codes.iter().map(|code| code.image.index).collect();
    images.sort_unstable();
    images.dedup();
    Ok(Some(Moved { host, images }))
}

/// The recipe of the file `binary`. `host` is the new file. `half` is the old file without its code
/// objects; the recipe stores it as a patch against `host`. For a wheel, `programs` are its members
/// that lost code.
fn recipe_of(
    binary: &str,
    half: Rope,
    host: &FileSlice,
    programs: Vec<String>,
    spool: &mut Spool,
) -> Result<Rope> {
    let half = half.into_piece(spool)?;
    let patch = patch(&half, &similar(host, &programs, spool)?, spool)?;
    Ok(kpack_recipe(binary, &Checksum::of(host)?, &programs, patch))
}

/// The bytes that a patch refers to: the new file `host`, and, if it is a wheel, also its
/// decompressed `programs`.
fn similar(host: &FileSlice, programs: &[String], spool: &mut Spool) -> Result<FileSlice> {
    if programs.is_empty() {
        Ok(host.clone())
    } else {
        wheels::with_programs(host, programs, spool)
    }
}

/// The new archives, by target.
#[derive(Default)]
struct Archives {
    by_arch: BTreeMap<String, NewArchive>,
}

#[derive(Default)]
struct NewArchive {
    /// Each entry is a key and the index of a code object. The key is `PROGRAM#N`, where N is the
    /// number of the registration.
    entries: Vec<(String, usize)>,
    codes: Vec<Code>,
    frames: Vec<Rope>,
    known: HashMap<Checksum, usize>,
}

impl Archives {
    /// Adds a code object. Equal ones are stored once.
    fn add(
        &mut self,
        binary: String,
        arch: &str,
        code: &FileSlice,
        spool: &mut Spool,
    ) -> Result<()> {
        let archive = self.by_arch.entry(arch.to_owned()).or_default();
        let sum = Checksum::of(code)?;
        let next = archive.codes.len();
        let place = *archive.known.entry(sum).or_insert(next);
        if place == next {
            let frame = zstd_frame(&code.clone().into(), LEVEL, spool)?;
            archive.codes.push(Code {
                stored: frame.size(),
                original_size: code.size(),
            });
            archive.frames.push(frame);
        }
        archive.entries.push((binary, place));
        Ok(())
    }

    fn finish(self, group: &str) -> Result<Vec<(String, Rope)>> {
        let one = |(arch, archive): (String, NewArchive)| -> Result<(String, Rope)> {
            let entries = archive.entries.iter().map(|(binary, code)| NewEntry {
                binary,
                arch: &arch,
                code: *code,
            });
            let head = Head {
                group,
                family: &arch,
                scheme: Scheme::ZstdPerKernel,
            };
            let parts = kpack::create(&head, &entries.collect::<Vec<_>>(), &archive.codes)?;
            let empty = FileSlice::owned(Vec::new());
            let bytes = Rope::of_parts(&empty, parts, archive.frames)?;
            Ok((arch, bytes))
        };
        self.by_arch.into_iter().map(one).collect()
    }
}

/// Compresses `bytes` by references to `like`, which has most of the same data.
fn patch(bytes: &FileSlice, like: &FileSlice, spool: &mut Spool) -> Result<Rope> {
    let packed = spool.add(|file| {
        let mut encoder = zstd::stream::write::Encoder::with_ref_prefix(file, LEVEL, like.bytes())?;
        encoder.window_log(window(bytes.size().saturating_add(like.size())))?;
        encoder.long_distance_matching(true)?;
        encoder.set_pledged_src_size(Some(bytes.size()))?;
        std::io::copy(&mut bytes.reader(), &mut encoder)?;
        encoder.finish()?.flush()?;
        Ok(())
    })?;
    Ok(packed.into())
}

/// The bytes that [`patch`] compressed.
fn patched(packed: &FileSlice, like: &FileSlice, spool: &mut Spool) -> Result<FileSlice> {
    spool.add(|file| {
        let reader = std::io::BufReader::new(packed.reader());
        let mut decoder = zstd::stream::read::Decoder::with_ref_prefix(reader, like.bytes())?;
        decoder.window_log_max(WINDOW)?;
        std::io::copy(&mut decoder, file)?;
        Ok(())
    })
}

/// The base-2 logarithm of a window that covers `size` bytes, within zstd's limits.
fn window(size: u64) -> u32 {
    (u64::BITS - size.leading_zeros()).clamp(20, WINDOW)
}

/// The inputs of a merge.
#[derive(Debug)]
pub struct Job {
    /// The recipe, with its path.
    pub recipe: (PathBuf, FileSlice),
    /// The program, library or wheel without HIP code, with its path.
    pub host: (PathBuf, FileSlice),
    /// The archives of a program, or the device wheels of a wheel, with their paths.
    pub archives: Vec<(PathBuf, FileSlice)>,
}

impl Job {
    /// Whether the archives are in wheels.
    pub fn has_wheels(&self) -> bool {
        is_zip(self.host.1.bytes())
    }
}

/// Restores a file from its new form and the archives. Decompressed data is in `spool`.
///
/// # Errors
/// A file is damaged, the program changed, or a code object is in no archive.
pub fn merge(job: &Job, spool: &mut Spool) -> Result<Joined> {
    let (path, recipe) = &job.recipe;
    let place = || path.display().to_string();
    let KpackRecipe {
        binary,
        host: sum,
        programs,
        patch,
    } = read_kpack_recipe(recipe).with_context(place)?;
    let (host_path, host) = &job.host;
    ensure!(
        Checksum::of(host)? == sum,
        "{}: changed since `offld split --kpack` wrote it: the recipe {} cannot restore the original",
        host_path.display(),
        path.display()
    );
    let damaged = || format!("{}: damaged", path.display());
    let similar = similar(host, &programs, spool).with_context(damaged)?;
    let half = patched(&patch, &similar, spool).with_context(damaged)?;
    let half = read_host(&half).with_context(place)?;
    let sizes = half
        .recipe
        .images
        .iter()
        .map(|image| image.sum.size)
        .collect();
    let codes = if job.has_wheels() {
        code_objects(None, &sizes, &wheels::archives(&job.archives)?, spool)?
    } else {
        code_objects(Some(&binary), &sizes, &job.archives, spool)?
    };
    restore(host_path, &half, spool, &mut |image, device| {
        let code = codes.get(&image.sum);
        let piece = code.with_context(|| {
            format!(
                "{}: a code object for {} is in no archive",
                host_path.display(),
                device.name()
            )
        })?;
        // The bytes were found by their checksum.
        Ok(Check::passed(piece.clone()))
    })
}

/// The path of the program that a recipe restores, in its installation.
///
/// # Errors
/// The file is not a recipe, or names a file outside of the installation.
pub fn binary_of((path, piece): &(PathBuf, FileSlice)) -> Result<String> {
    let recipe = read_kpack_recipe(piece).with_context(|| path.display().to_string())?;
    let is_within = Path::new(&recipe.binary)
        .components()
        .all(|part| matches!(part, Component::Normal(_)));
    ensure!(
        is_within,
        "{}: damaged: {} is outside of the installation",
        path.display(),
        recipe.binary
    );
    Ok(recipe.binary)
}

/// The code objects with one of the sizes `sizes`, by checksum. With `binary`, only those of that
/// program.
fn code_objects(
    binary: Option<&str>,
    sizes: &HashSet<u64>,
    archives: &[(PathBuf, FileSlice)],
    spool: &mut Spool,
) -> Result<HashMap<Checksum, FileSlice>> {
    let mut codes = HashMap::new();
    let largest = sizes.iter().max().copied().unwrap_or_default();
    for (path, piece) in archives {
        let place = || path.display().to_string();
        let archive = Archive::read(piece.bytes()).with_context(place)?;
        // Several programs may share a code object.
        let mut seen = HashSet::new();
        for entry in &archive.entries {
            let is_wanted = binary.is_none_or(|binary| split_key(entry.binary).0 == binary)
                && entry.original_size.is_none_or(|size| sizes.contains(&size));
            if !is_wanted {
                continue;
            }
            let range = entry.stored.clone().with_context(place)?;
            if !seen.insert(range.clone()) {
                continue;
            }
            let stored = piece
                .slice(range.start, range.end - range.start)
                .with_context(place)?;
            let code = match archive.scheme {
                Scheme::None => stored,
                Scheme::ZstdPerKernel => spool
                    .add(|file| {
                        let reader = std::io::BufReader::new(stored.reader());
                        let decoder = zstd::stream::read::Decoder::with_buffer(reader)?;
                        // The table of contents may lie about the size.
                        std::io::copy(&mut decoder.take(largest.saturating_add(1)), file)?;
                        Ok(())
                    })
                    .with_context(|| {
                        format!("{}: {} for {}", path.display(), entry.binary, entry.arch)
                    })?,
            };
            codes.insert(Checksum::of(&code)?, code);
        }
    }
    Ok(codes)
}

/// Finds the recipe and the archives of the program at `path`, or the recipe and the device wheels of
/// a wheel. Returns `None` for a program without a reference, and for a wheel without a recipe.
///
/// # Errors
/// A program has a reference, but no recipe; a wheel has several recipes; or a directory cannot be
/// read.
pub fn find(path: &Path, piece: &FileSlice) -> Result<Option<(PathBuf, Vec<PathBuf>)>> {
    if is_zip(piece.bytes()) {
        return wheels::find(path);
    }
    let Some(program) = kpack::program(piece.bytes()).ok().flatten() else {
        return Ok(None);
    };
    let Reference {
        binary,
        search_paths,
    } = program.reference;
    let Some(search) = search_paths.first() else {
        return Ok(None);
    };
    let folder = path.parent().unwrap_or(Path::new(""));
    let pattern = folder.join(search);
    let name = pattern
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    let group = name
        .split(PLACEHOLDER)
        .next()
        .unwrap_or_default()
        .trim_end_matches('_');
    let archives = pattern.parent().unwrap_or(folder);
    let recipe = archives.join(group).join(format!("{binary}{RECIPE}"));
    if !recipe.is_file() {
        bail!(
            "{}: no recipe {}: only files of `offld split --kpack` can be merged with their archives",
            path.display(),
            recipe.display()
        );
    }
    Ok(Some((recipe, crate::contents::packs::archives_of(path))))
}
