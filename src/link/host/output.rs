//! Output of the host link: checks that it is complete. For late images, also handles existing
//! files and symlinks in the linker's way.

use std::fs::{self, File, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Result, bail};
use object::{Endianness, LittleEndian, pe, pod};
use rustix::fs::{Access, access};
use rustix::process::geteuid;

use crate::formats::elf::raw::{Class, FileHeader, ProgramHeader, Record, SectionHeader};
use crate::sys::atomic_file::target_of;

/// Checks that the linker has written its complete output. GNU ld ignores failures of its last
/// writes, for example on a full disk. The check reads headers only.
///
/// # Errors
/// The headers describe more bytes than the file has.
pub(crate) fn check_whole(output: &Path, linker: &Path) -> Result<()> {
    if !fs::metadata(output).is_ok_and(|meta| meta.is_file()) {
        return Ok(());
    }
    // An output without read permission cannot be checked.
    let Ok(file) = File::open(output) else {
        return Ok(());
    };
    let has = file.metadata()?.len();
    let needs = described_size(&file, has)?;
    if needs > has {
        bail!(
            "`{}` reported success but `{}` is truncated: {has} of at least {needs} bytes. offld removes the file. Check whether \
             the disk is full",
            linker.display(),
            output.display()
        );
    }
    Ok(())
}

/// Returns the minimum size of a file in bytes according to its headers; 0 for formats other than
/// ELF and PE. `size` is the actual size, beyond which nothing is read.
fn described_size(file: &File, size: u64) -> io::Result<u64> {
    let start = read(file, 0, 4096, size)?;
    if let Ok((class, header)) = FileHeader::read(&start) {
        let end =
            |at: u64, count: u64, each: usize| at.saturating_add(count.saturating_mul(each as u64));
        let (each, count) = (SectionHeader::size(class), u64::from(header.shnum));
        let sections = if header.shoff == 0 {
            0
        } else {
            end(header.shoff, count.max(1), each)
        };
        let (segment, segments) = (ProgramHeader::size(class), u64::from(header.phnum));
        let mut needs = sections.max(if header.phoff == 0 {
            0
        } else {
            end(header.phoff, segments, segment)
        });
        if needs <= size {
            let table = read(file, header.shoff, count.saturating_mul(each as u64), size)?;
            let of_sections = table
                .chunks_exact(each)
                .filter_map(|bytes| SectionHeader::of(class, bytes));
            let in_file = of_sections.filter(|section| !section.is_empty_in_file());
            needs = in_file.fold(needs, |needs, section| {
                needs.max(section.offset.saturating_add(section.size))
            });
            let table = read(
                file,
                header.phoff,
                segments.saturating_mul(segment as u64),
                size,
            )?;
            let of_segments = table
                .chunks_exact(segment)
                .filter_map(|bytes| ProgramHeader::of(class, bytes));
            needs = of_segments.fold(needs, |needs, segment| {
                needs.max(segment.offset.saturating_add(segment.filesz))
            });
        }
        return Ok(needs);
    }
    if start.starts_with(b"\x7fELF") {
        // The header itself is truncated.
        return Ok(FileHeader::size(Class {
            is_64: false,
            endian: Endianness::Little,
        }) as u64);
    }
    Ok(described_by_pe(&start).unwrap_or(0))
}

/// Returns the minimum size in bytes of the PE file with these first bytes.
fn described_by_pe(start: &[u8]) -> Option<u64> {
    let (dos, _) = pod::from_bytes::<pe::ImageDosHeader>(start).ok()?;
    let at = (dos.e_magic.get(LittleEndian) == pe::IMAGE_DOS_SIGNATURE)
        .then(|| dos.e_lfanew.get(LittleEndian) as usize)?;
    let header = start.get(at..)?.strip_prefix(b"PE\0\0")?;
    let (header, rest) = pod::from_bytes::<pe::ImageFileHeader>(header).ok()?;
    let sections = rest.get(usize::from(header.size_of_optional_header.get(LittleEndian))..)?;
    let count = usize::from(header.number_of_sections.get(LittleEndian));
    let (sections, _) = pod::slice_from_bytes::<pe::ImageSectionHeader>(sections, count).ok()?;
    let end = |section: &pe::ImageSectionHeader| {
        u64::from(section.pointer_to_raw_data.get(LittleEndian))
            + u64::from(section.size_of_raw_data.get(LittleEndian))
    };
    let symbols = u64::from(header.pointer_to_symbol_table.get(LittleEndian));
    let table =
        u64::from(header.number_of_symbols.get(LittleEndian)) * pe::IMAGE_SIZEOF_SYMBOL as u64;
    sections
        .iter()
        .filter(|section| section.pointer_to_raw_data.get(LittleEndian) != 0)
        .map(end)
        .chain((symbols != 0).then_some(symbols + table))
        .max()
}

/// Reads up to `len` bytes of `file` from `at`. `size` is the file's size.
fn read(file: &File, at: u64, len: u64, size: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(len.min(size.saturating_sub(at))).unwrap_or(0)];
    file.read_exact_at(&mut bytes, at)?;
    Ok(bytes)
}

/// The location of an output that the linker does not write itself. Linkers treat existing files
/// and symlinks in different ways: ld.lld replaces a symlink, mold writes to the file that it
/// points to, and GNU ld does either, depending on that file. So the linker gets a stand-in for the
/// output in another directory. The real output is then treated like the stand-in.
#[derive(Debug)]
pub(crate) struct Place {
    name: PathBuf,
    /// The file that the symlink `name` points to, which need not exist.
    target: Option<PathBuf>,
    /// The existing file at `name`, if there is one.
    old: Option<OldFile>,
}

#[derive(Debug)]
struct OldFile {
    is_empty: bool,
    mode: u32,
    uid: u32,
    gid: u32,
}

impl Place {
    /// Returns the location for `output` in a link of `inputs`.
    ///
    /// # Errors
    /// The reason why only the linker itself can write this output.
    pub(crate) fn of<'i>(
        output: &Path,
        inputs: impl IntoIterator<Item = &'i Path>,
    ) -> Result<Place, String> {
        let shown = output.display();
        let of_symlink = fs::symlink_metadata(output).is_ok_and(|meta| meta.is_symlink());
        let target = of_symlink
            .then(|| target_of(output))
            .transpose()
            .map_err(|error| format!("`{shown}`: {error}"))?;
        let old = fs::metadata(output).ok();
        for directory in [Some(output), target.as_deref()]
            .into_iter()
            .flatten()
            .map(super::folder_of)
        {
            if access(directory, Access::WRITE_OK | Access::EXEC_OK).is_err() {
                return Err(format!("cannot create files in `{}`", directory.display()));
            }
        }
        if let Some(meta) = &old {
            let identity = |meta: &Metadata| (meta.dev(), meta.ino());
            let is_it = |input: &&Path| {
                fs::metadata(input).is_ok_and(|input| identity(&input) == identity(meta))
            };
            if !meta.is_file() {
                return Err(format!("`{shown}` is not a regular file"));
            }
            if inputs.into_iter().any(|input| is_it(&input)) {
                return Err(format!("`{shown}` is an input of the link"));
            }
            if meta.nlink() > 1 {
                return Err(format!("`{shown}` has several hard links"));
            }
            if meta.uid() != geteuid().as_raw() && !geteuid().is_root() {
                return Err(format!("`{shown}` belongs to another user"));
            }
        }
        let old = old.map(|meta| OldFile {
            is_empty: meta.len() == 0,
            mode: meta.mode() & 0o7777,
            uid: meta.uid(),
            gid: meta.gid(),
        });
        Ok(Place {
            name: output.to_path_buf(),
            target,
            old,
        })
    }

    /// Creates the stand-in `program` in an empty directory: nothing, a file with the owner and
    /// mode of the existing one, or a symlink.
    ///
    /// # Errors
    /// The stand-in cannot be created.
    pub(crate) fn imitate(&self, program: &Path) -> io::Result<()> {
        let mut file = program.to_path_buf();
        if self.target.is_some() {
            file.set_file_name(".target");
            symlink(".target", program)?;
        }
        let Some(old) = &self.old else { return Ok(()) };
        // Some linkers write to an empty file and replace any other file.
        fs::write(&file, if old.is_empty { "" } else { "old" })?;
        let own = fs::metadata(&file)?;
        if own.uid() != old.uid {
            chown(&file, Some(old.uid), None)?;
        }
        if own.gid() != old.gid {
            // The user can set only groups that the user belongs to. The group matters only to
            // linkers that write to the existing file.
            let _ = chown(&file, None, Some(old.gid));
        }
        fs::set_permissions(&file, Permissions::from_mode(old.mode))
    }

    /// Returns the path to which the program moves, which depends on how the linker treated the
    /// stand-in.
    pub(crate) fn of_program(&self, program: &Path) -> &Path {
        let is_link = fs::symlink_metadata(program).is_ok_and(|meta| meta.is_symlink());
        self.target
            .as_deref()
            .filter(|_| is_link)
            .unwrap_or(&self.name)
    }
}

/// Removes the partial output of a linker that was stopped. Removes only a regular file, never a
/// device, a pipe or a symlink.
pub(crate) fn remove_partial(output: &Path) {
    if fs::symlink_metadata(output).is_ok_and(|meta| meta.is_file()) {
        let _ = fs::remove_file(output);
    }
}

/// Removes the files that a crashed linker leaves, for example on a full disk. wild leaves part of
/// its output. ld.lld leaves `<output>.tmpXXXXXXX` if two of its threads crash at once, before its
/// cleanup. Only files that are not older than the link are removed. `crashed`: a signal has ended
/// the linker.
pub(crate) fn remove_leftovers(output: &Path, started: SystemTime, crashed: bool) {
    // File timestamps are coarser than the system's clock.
    const TICK: Duration = Duration::from_secs(1);
    let is_young = |meta: io::Result<Metadata>| {
        meta.and_then(|meta| meta.modified())
            .is_ok_and(|time| time + TICK >= started)
    };
    if crashed && is_young(fs::metadata(output)) {
        remove_partial(output);
    }
    let Some(name) = output.file_name() else {
        return;
    };
    let is_theirs = |file: &[u8]| {
        let random = file
            .strip_prefix(name.as_encoded_bytes())
            .and_then(|rest| rest.strip_prefix(b".tmp"));
        random.is_some_and(|random| random.len() == 7 && random.iter().all(u8::is_ascii_hexdigit))
    };
    for entry in fs::read_dir(super::folder_of(output))
        .into_iter()
        .flatten()
        .flatten()
    {
        if is_theirs(entry.file_name().as_encoded_bytes()) && is_young(entry.metadata()) {
            remove_partial(&entry.path());
        }
    }
}
