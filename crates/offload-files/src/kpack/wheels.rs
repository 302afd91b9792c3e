//! Wheels whose HIP code is in kpack archives. The wheel keeps its name. Its archives are in other
//! wheels, one for each architecture, which pip installs for an extra: `pip install
//! x[device-gfx90a]`. ROCm's wheels have extras of the same names (ROCm/rocm-systems#5514).

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, DateTime, ZipWriter};

use super::{Archives, DIRECTORY, Host, Moved, RECIPE, Source, archive_name, moved, recipe_of};
use crate::edit::files::wheel::{self, FileName};
use crate::split;
use offld_system::io::file_slice::{FileSlice, Spool, start_of_zip_member, zip_member};
use offld_system::io::rope::Rope;
use offld_system::session::Session;
use offload_formats::kpack::{PLACEHOLDER, Reference};
use offload_formats::magic::{ByteKind, START, byte_kind, may_have_device_code};
use offload_formats::zip::{ZipMember, ZipMethod};

/// The prefix of the names of extras. ROCm's wheels use the same.
const EXTRA: &str = "device-";
/// The extra for all architectures.
const ALL: &str = "all";
/// The first version of metadata that has extras.
const EXTRAS_SINCE: &str = "2.1";
/// Files of this size or more need 64-bit sizes in a zip file.
const LARGE: u64 = u32::MAX as u64;

/// The distribution name of the device wheel for `arch`, as in file names.
fn device_distribution(host: &FileName<'_>, arch: &str) -> String {
    format!("{}_device_{}", host.distribution, arch.replace('-', "_"))
}

fn name_of(path: &Path) -> Option<FileName<'_>> {
    FileName::parse(path.file_name()?.to_str()?)
}

/// Whether the file at `path` has the name of a device wheel of the wheel at `host`.
pub fn is_device_wheel(path: &Path, host: &Path) -> bool {
    let (Some(one), Some(own)) = (name_of(path), name_of(host)) else {
        return false;
    };
    let arch = one
        .distribution
        .strip_prefix(&device_distribution(&own, ""));
    path.parent() == host.parent()
        && arch.is_some_and(|arch| arch.starts_with("gfx"))
        && (one.version, one.build, one.tags, one.label)
            == (own.version, own.build, own.tags, own.label)
}

/// A member of a wheel that pip installs into site-packages.
struct Member<'n> {
    /// `platlib` or `purelib`, if the member is below `NAME-VERSION.data`. `None`: the kind
    /// that `Root-Is-Purelib` of the wheel sets.
    kind: Option<&'static str>,
    /// The path in site-packages.
    path: &'n str,
}

impl<'n> Member<'n> {
    /// Returns `None` for members that pip installs elsewhere, such as scripts.
    fn of(name: &'n str, wheel: &FileName<'_>) -> Option<Member<'n>> {
        let data = format!("{}-{}.data/", wheel.distribution, wheel.version);
        let Some(rest) = name.strip_prefix(&data) else {
            let kind = None;
            return Some(Member { kind, path: name });
        };
        ["platlib", "purelib"].into_iter().find_map(|kind| {
            let path = rest.strip_prefix(kind)?.strip_prefix('/')?;
            let kind = Some(kind);
            Some(Member { kind, path })
        })
    }
}

/// A file in the wheel's `.dist-info` directory.
struct Metadata {
    member: Vec<u8>,
    text: String,
}

impl Metadata {
    fn read(
        path: &Path,
        zip: &FileSlice,
        members: &[ZipMember<'_>],
        name: &str,
    ) -> Result<Metadata> {
        let mut all = members.iter();
        let member = all.find(|member| wheel::is_metadata(member.name, name));
        let place = || format!("{}: not a wheel: no {name}", path.display());
        let member = member.with_context(place)?;
        let text = wheel::text(zip, member).with_context(|| path.display().to_string())?;
        Ok(Metadata {
            member: member.name.to_vec(),
            text,
        })
    }

    /// The lines of the header, with their line breaks.
    fn header(&self) -> impl Iterator<Item = &str> {
        let lines = self.text.split_inclusive('\n');
        lines.take_while(|line| !line.trim_end_matches(['\r', '\n']).is_empty())
    }

    /// The value of a field of the header.
    fn field(&self, name: &str) -> Option<&str> {
        self.header()
            .find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim()))
    }

    /// The text with more fields at the end of the header.
    fn with_fields(&self, fields: &[String]) -> String {
        let is_crlf = self
            .header()
            .next()
            .is_some_and(|line| line.ends_with("\r\n"));
        let end = if is_crlf { "\r\n" } else { "\n" };
        let len: usize = self.header().map(str::len).sum();
        let (_, body) = self.text.split_at(len);
        let mut text = String::with_capacity(self.text.len());
        for line in self.header() {
            match line.strip_prefix("Metadata-Version:").map(str::trim) {
                Some("1.0" | "1.1" | "1.2" | "2.0") => {
                    text.push_str(&format!("Metadata-Version: {EXTRAS_SINCE}{end}"));
                }
                _ => text.push_str(line),
            }
        }
        if !text.ends_with('\n') {
            text.push_str(end);
        }
        for field in fields {
            text.push_str(field);
            text.push_str(end);
        }
        text + body
    }
}

/// A directory with its own archives: its kind, as in [`Member`], and its name in site-packages. The
/// name of site-packages itself is empty.
type Directory = (Option<&'static str>, String);

/// Moves the HIP code of the wheel `piece` into archives. Returns `None` if it has none, or if its
/// name is not that of a wheel.
pub(super) fn split(
    index: usize,
    source: &Source,
    piece: &FileSlice,
    session: &Session,
    spool: &mut Spool,
) -> Result<Option<Host>> {
    let path = &source.path;
    let Some(file_name) = name_of(path) else {
        return Ok(None);
    };
    let zip = wheel::opened(path, piece)?;
    let members = wheel::members(path, &zip)?;
    let mut archives: BTreeMap<Directory, Archives> = BTreeMap::new();
    let (mut new, mut wanted, mut count) = (HashMap::new(), HashMap::new(), 0);
    let mut binaries = HashSet::new();
    for member in &members {
        session.signals.check()?;
        let place = || format!("{}({})", path.display(), member.shown_name());
        if !may_have_device_code(&start_of_zip_member(piece, member, START).with_context(place)?) {
            continue;
        }
        let plain = zip_member(piece, member).with_context(place)?.as_file();
        if !matches!(byte_kind(plain.bytes(), true), ByteKind::Object(_)) {
            continue;
        }
        let name = std::str::from_utf8(member.name)
            .with_context(|| format!("{}: kpack archives need names in UTF-8", place()))?;
        // The recipe has one name per line (`split_manifest::kpack_recipe`).
        ensure!(
            !name.contains(['\n', '\r']),
            "{}: a line end in the name",
            place()
        );
        let Some(installed) = Member::of(name, &file_name) else {
            continue;
        };
        // If several members have the same installed path, pip keeps only the last one.
        ensure!(
            binaries.insert(installed.path.to_owned()),
            "{}: another member is installed at the same path",
            place()
        );
        let (top, below) = installed
            .path
            .split_once('/')
            .unwrap_or(("", installed.path));
        let up = "../".repeat(below.matches('/').count());
        let archive = archive_name(file_name.distribution, PLACEHOLDER);
        let reference = Reference {
            binary: installed.path.to_owned(),
            search_paths: vec![format!("{up}{DIRECTORY}/{archive}")],
        };
        let name = path.join(member.path().with_context(place)?);
        let to = archives
            .entry((installed.kind, top.to_owned()))
            .or_default();
        if let Some(Moved { host, images }) = moved(&name, &plain, &reference, to, session, spool)?
        {
            count += images.len();
            new.insert(member.name.to_vec(), Rope::from(host));
            wanted.insert(member.name.to_vec(), images);
        }
    }
    if new.is_empty() {
        return Ok(None);
    }
    let metadata = Metadata::read(path, piece, &members, "METADATA")?;
    let described = Metadata::read(path, piece, &members, "WHEEL")?;
    let field = |name: &str| {
        let found = metadata.field(name).map(str::to_owned);
        found.with_context(|| format!("{}: METADATA has no {name}", path.display()))
    };
    let host = HostWheel {
        file_name: &file_name,
        name: field("Name")?,
        version: field("Version")?,
        root_is_purelib: described.field("Root-Is-Purelib").unwrap_or("false"),
        session,
    };
    let files = device_files(archives, &file_name)?;
    for (name, _) in files.values().flatten() {
        if members.iter().any(|member| member.name == name.as_bytes()) {
            bail!(
                "{}: its member {name} would be replaced by the archive of the same name in a device wheel",
                path.display()
            );
        }
    }
    let archs: BTreeSet<&str> = files.keys().map(String::as_str).collect();
    let text = metadata.with_fields(&host.extras(&archs));
    let mut programs: Vec<String> = new
        .keys()
        .map(|name| String::from_utf8_lossy(name).into_owned())
        .collect();
    programs.sort_unstable();
    new.insert(metadata.member.clone(), Rope::from(text.into_bytes()));
    let bytes = wheel::with_contents(path, piece, &new, session)?.into_piece(spool)?;
    let half = split::wheel_without_images(path, piece, &wanted, session, spool)?;
    let recipe = recipe_of(&source.binary, half, &bytes, programs, spool)?;
    let device_wheels = files
        .into_iter()
        .map(|(arch, files)| host.device_wheel(&arch, files));
    Ok(Some(Host {
        source: index,
        recipe,
        device_wheels: device_wheels.collect::<Result<_>>()?,
        bytes: bytes.into(),
        images: count,
    }))
}

/// The archives of each device wheel, with their paths in it. One wheel has the archives for all
/// targets of an architecture: `gfx90a`, `gfx90a:xnack+`.
fn device_files(
    archives: BTreeMap<Directory, Archives>,
    host: &FileName<'_>,
) -> Result<BTreeMap<String, Vec<(String, Rope)>>> {
    let mut files: BTreeMap<String, Vec<(String, Rope)>> = BTreeMap::new();
    for ((kind, top), archives) in archives {
        for (target, bytes) in archives.finish(host.distribution)? {
            let arch = target.split(':').next().unwrap_or(&target);
            let mut name = String::new();
            if let Some(kind) = kind {
                let distribution = device_distribution(host, arch);
                name.push_str(&format!("{distribution}-{}.data/{kind}/", host.version));
            }
            if !top.is_empty() {
                name.push_str(&format!("{top}/"));
            }
            let archive = archive_name(host.distribution, &target);
            name.push_str(&format!("{DIRECTORY}/{archive}"));
            files
                .entry(arch.to_owned())
                .or_default()
                .push((name, bytes));
        }
    }
    Ok(files)
}

/// The metadata that the device wheels of a wheel repeat.
struct HostWheel<'w> {
    file_name: &'w FileName<'w>,
    name: String,
    version: String,
    root_is_purelib: &'w str,
    session: &'w Session,
}

impl HostWheel<'_> {
    fn device_name(&self, arch: &str) -> String {
        format!("{}-{EXTRA}{arch}", self.name)
    }

    /// The fields of the metadata that name the device wheels: an extra for each architecture, and
    /// one for all.
    fn extras(&self, archs: &BTreeSet<&str>) -> Vec<String> {
        let needs = |arch: &str, extra: &str| {
            let (name, version) = (self.device_name(arch), &self.version);
            format!("Requires-Dist: {name}=={version}; extra == \"{EXTRA}{extra}\"")
        };
        let mut fields = Vec::new();
        for arch in archs {
            fields.push(format!("Provides-Extra: {EXTRA}{arch}"));
            fields.push(needs(arch, arch));
        }
        fields.push(format!("Provides-Extra: {EXTRA}{ALL}"));
        fields.extend(archs.iter().map(|arch| needs(arch, ALL)));
        fields
    }

    /// The wheel with the archives for an architecture, and its file name. It has the tags of the
    /// host wheel, because wheels for other versions of Python can have other code.
    fn device_wheel(&self, arch: &str, files: Vec<(String, Rope)>) -> Result<(String, Rope)> {
        let FileName {
            version,
            build,
            tags,
            label,
            ..
        } = self.file_name;
        let distribution = device_distribution(self.file_name, arch);
        let part = |part: &Option<&str>| part.map_or_else(String::new, |part| format!("-{part}"));
        let file_name = format!(
            "{distribution}-{version}{}-{}{}.whl",
            part(build),
            tags.join("-"),
            part(label)
        );
        let info = format!("{distribution}-{version}.dist-info");
        let metadata = format!(
            "Metadata-Version: {EXTRAS_SINCE}\nName: {}\nVersion: {}\nSummary: Device code of {} for {arch}\nRequires-Dist: {}=={}\n",
            self.device_name(arch),
            self.version,
            self.name,
            self.name,
            self.version
        );
        let mut described = format!(
            "Wheel-Version: 1.0\nGenerator: offld {}\nRoot-Is-Purelib: {}\n",
            env!("CARGO_PKG_VERSION"),
            self.root_is_purelib
        );
        for tag in self.file_name.all() {
            described.push_str(&format!("Tag: {tag}\n"));
        }
        if let Some(build) = build {
            described.push_str(&format!("Build: {build}\n"));
        }
        let mut files = files;
        files.push((format!("{info}/METADATA"), metadata.into_bytes().into()));
        files.push((format!("{info}/WHEEL"), described.into_bytes().into()));
        let mut record = String::new();
        for (name, bytes) in &files {
            let mut sha256 = Sha256::new();
            bytes.for_each_chunk(|chunk| {
                sha256.update(chunk);
                Ok(())
            })?;
            let digest = URL_SAFE_NO_PAD.encode(sha256.finalize());
            let name = wheel::quoted(name);
            record.push_str(&format!("{name},sha256={digest},{}\n", bytes.size()));
        }
        record.push_str(&format!("{info}/RECORD,,\n"));
        files.push((format!("{info}/RECORD"), record.into_bytes().into()));
        Ok((file_name, stored_zip(&files, self.session)?.into()))
    }
}

/// A zip file that stores these files uncompressed, because kpack archives are already compressed.
fn stored_zip(files: &[(String, Rope)], session: &Session) -> Result<FileSlice> {
    // The zip must start at position 0 of a file, because the writer takes positions as offsets.
    Spool::new(session).add(|file| {
        let mut zip = ZipWriter::new(file);
        for (name, bytes) in files {
            let options = SimpleFileOptions::default()
                .compression_method(CompressionMethod::Stored)
                .last_modified_time(DateTime::DEFAULT)
                .unix_permissions(0o644)
                .large_file(bytes.size() >= LARGE);
            zip.start_file(name.as_str(), options)?;
            bytes.for_each_chunk(|chunk| zip.write_all(chunk))?;
        }
        zip.finish()?;
        Ok(())
    })
}

/// The bytes of the wheel `zip`, and after them the decompressed bytes of those members in `programs`
/// that the wheel compresses.
pub(super) fn with_programs(
    zip: &FileSlice,
    programs: &[String],
    spool: &mut Spool,
) -> Result<FileSlice> {
    let mut all = Rope::from(zip.clone());
    let read = wheel::opened(Path::new("the wheel"), zip)?;
    let members = wheel::members(Path::new("the wheel"), &read)?;
    for program in programs {
        let mut own = members.iter();
        let member = own.find(|member| member.name == program.as_bytes());
        let member = member.with_context(|| format!("no member {program}"))?;
        if member.method != ZipMethod::Stored {
            all.push_piece(zip_member(zip, member)?.as_file());
        }
    }
    all.into_piece(spool)
}

/// The archives in device wheels.
pub(super) fn archives(wheels: &[(PathBuf, FileSlice)]) -> Result<Vec<(PathBuf, FileSlice)>> {
    let mut all = Vec::new();
    for (path, piece) in wheels {
        let zip = wheel::opened(path, piece)?;
        for member in wheel::members(path, &zip)? {
            if member.name.ends_with(b".kpack") {
                let place = || format!("{}({})", path.display(), member.shown_name());
                let name = path.join(member.path().with_context(place)?);
                all.push((name, zip_member(piece, &member).with_context(place)?));
            }
        }
    }
    Ok(all)
}

/// The recipe of the wheel at `path`, and its device wheels. Returns `None` if there is no recipe.
///
/// # Errors
/// There are several recipes for wheels of this name.
pub(super) fn find(path: &Path) -> Result<Option<(PathBuf, Vec<PathBuf>)>> {
    if name_of(path).is_none() {
        return Ok(None);
    }
    let place = || path.display().to_string();
    let path = &path.canonicalize().with_context(place)?;
    let mut recipes = Vec::new();
    for directory in path.ancestors().skip(1) {
        let within = path.strip_prefix(directory)?;
        let Ok(groups) = std::fs::read_dir(directory.join(DIRECTORY)) else {
            continue;
        };
        for group in groups.flatten() {
            let mut recipe = group.path().join(within).into_os_string();
            recipe.push(RECIPE);
            recipes.push(PathBuf::from(recipe));
        }
    }
    recipes.retain(|recipe| recipe.is_file());
    let [recipe] = &recipes[..] else {
        let first = recipes.first().map(|recipe| recipe.display().to_string());
        return match first {
            None => Ok(None),
            Some(first) => bail!("{}: several recipes, such as {first}", path.display()),
        };
    };
    let folder = path.parent().unwrap_or(Path::new(""));
    let entries = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut wheels: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|other| is_device_wheel(other, path))
        .collect();
    wheels.sort();
    Ok(Some((recipe.clone(), wheels)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_device_wheels() {
        let host = Path::new("d/torch-2.1+rocm7-1-cp312-cp312-manylinux_2_28_x86_64.whl");
        assert_eq!(
            device_distribution(&name_of(host).unwrap(), "gfx11-generic"),
            "torch_device_gfx11_generic"
        );
        let is_device = |name: &str| is_device_wheel(&Path::new("d").join(name), host);
        let end = "1-cp312-cp312-manylinux_2_28_x86_64.whl";
        assert!(is_device(&format!("torch_device_gfx90a-2.1+rocm7-{end}")));
        assert!(!is_device(&format!("torch_device_gfx90a-2.2+rocm7-{end}")));
        assert!(!is_device(&format!("torch_device_tools-2.1+rocm7-{end}")));
        assert!(!is_device(&format!("torch-2.1+rocm7-{end}")));
        assert!(!is_device(
            "torch_device_gfx90a-2.1+rocm7-1-cp313-cp313-manylinux_2_28_x86_64.whl"
        ));
        let variant = name_of(Path::new("torch-2.9-cp313-cp313-linux_x86_64-rocm6.whl")).unwrap();
        assert_eq!((variant.build, variant.label), (None, Some("rocm6")));
        assert!(name_of(Path::new("torch.zip")).is_none());
        assert!(name_of(Path::new("torch-2.1.whl")).is_none());
    }

    #[test]
    fn paths_in_site_packages() {
        let wheel = FileName::parse("t-1-py3-none-any.whl").unwrap();
        let of = |name| Member::of(name, &wheel).map(|member| (member.kind, member.path));
        assert_eq!(of("torch/lib/x.so"), Some((None, "torch/lib/x.so")));
        assert_eq!(
            of("t-1.data/platlib/t/x.so"),
            Some((Some("platlib"), "t/x.so"))
        );
        assert_eq!(of("t-1.data/scripts/x"), None);
        assert_eq!(of("other.data/x.so"), Some((None, "other.data/x.so")));
        assert_eq!(of("x.so"), Some((None, "x.so")));
    }

    #[test]
    fn fields_follow_the_header() {
        let metadata = |text: &str| Metadata {
            member: Vec::new(),
            text: text.to_owned(),
        };
        let fields = ["Provides-Extra: x".to_owned()];
        let body = metadata("Name: a\nVersion: 1\n\nName: b\r\n\r\nc");
        assert_eq!(body.field("Name"), Some("a"));
        assert_eq!(body.field("Version"), Some("1"));
        assert_eq!(body.field("Summary"), None);
        assert_eq!(
            body.with_fields(&fields),
            "Name: a\nVersion: 1\nProvides-Extra: x\n\nName: b\r\n\r\nc"
        );
        assert_eq!(
            metadata("Metadata-Version: 2.0\r\nName: a\r\n\r\nb").with_fields(&fields),
            "Metadata-Version: 2.1\r\nName: a\r\nProvides-Extra: x\r\n\r\nb"
        );
        assert_eq!(
            metadata("Metadata-Version: 2.4\nName: a").with_fields(&fields),
            "Metadata-Version: 2.4\nName: a\nProvides-Extra: x\n"
        );
    }
}
