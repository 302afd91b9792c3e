//! All bytes of files, with everything that they belong to, and the names of templates.

use std::collections::{BTreeMap, HashMap};
use std::str::FromStr;
use std::sync::Arc;

use rayon::prelude::*;
use regex::bytes::{Regex, RegexBuilder};

use super::FileSize;
use crate::contents::layout::{Footprint, ImageIndex, Name, Names, Part};
use crate::diff::renames;
use offload_formats::error::Error;
use offload_formats::kernels::SourceName;
use offload_formats::model::printable;

/// A level at which bytes can be distinguished.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Level {
    /// The file, if there are several.
    File,
    /// The architecture.
    Arch,
    /// The programming model.
    Kind,
    /// The format of the container.
    Container,
    /// The translation unit.
    Unit,
    /// The template that a kernel is an instance of, or its name without parameters.
    Template,
    /// The kernel or device function.
    Kernel,
    /// The section.
    Section,
    /// The purpose of the bytes.
    Part,
    /// The member of a wheel, another zip file or a tar archive.
    Member,
}

impl Level {
    /// All levels, in the order of [`Item::keys`].
    pub(crate) const ALL: [Level; 10] = [
        Level::File,
        Level::Arch,
        Level::Kind,
        Level::Container,
        Level::Unit,
        Level::Template,
        Level::Kernel,
        Level::Section,
        Level::Part,
        Level::Member,
    ];

    /// Its name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Level::File => "file",
            Level::Arch => "arch",
            Level::Kind => "kind",
            Level::Container => "container",
            Level::Unit => "unit",
            Level::Template => "template",
            Level::Kernel => "kernel",
            Level::Section => "section",
            Level::Part => "part",
            Level::Member => "member",
        }
    }

    /// The label for bytes without a name at this level.
    pub(crate) fn nothing(self) -> &'static str {
        match self {
            Level::File | Level::Part => "",
            Level::Arch => "(containers)",
            Level::Kind => "(no kind)",
            Level::Container => "(no container)",
            Level::Unit => "(unit unknown)",
            Level::Template | Level::Kernel => "(no kernel)",
            Level::Section => "(no section)",
            Level::Member => "(no member)",
        }
    }
}

impl FromStr for Level {
    type Err = Error;

    /// The level with this name.
    fn from_str(name: &str) -> Result<Level, Error> {
        let known = || Level::ALL.map(Level::name).join(", ");
        let found = Level::ALL.into_iter().find(|level| level.name() == name);
        found.ok_or_else(|| {
            Error::usage(format!(
                "unknown level `{}`: expected one of {}",
                printable(name),
                known()
            ))
        })
    }
}

/// Bytes with the same names at all levels.
#[derive(Debug, Clone, Copy)]
pub struct Item {
    /// Their names, in the order of [`Level::ALL`].
    pub(crate) keys: [Name; Level::ALL.len()],
    /// The index of the image among the images of all files; none for the bytes of the host and of
    /// containers.
    pub(crate) image: ImageIndex,
    /// The number of bytes in the file.
    pub file: u64,
    /// The number of bytes after decompression.
    pub inflated: u64,
}

impl Item {
    /// Their name at a level.
    pub(crate) fn key(&self, level: Level) -> Name {
        self.keys[level as usize]
    }
}

/// All bytes of some files.
#[derive(Debug)]
pub struct Items {
    /// The bytes.
    pub list: Vec<Item>,
    /// The names in it.
    pub names: Arc<Names>,
    /// The architecture of the host's bytes.
    pub(crate) host: Name,
    /// The mangled name of each kernel, by its name in the source.
    pub(crate) mangled: HashMap<Name, Name>,
}

/// The names of a kernel.
#[derive(Clone, Copy, Default)]
struct SourceNames {
    kernel: Name,
    template: Name,
}

impl Items {
    /// Creates the items for `files`, whose footprints have the same indices. Moves the leaves out
    /// of the footprints.
    pub(super) fn of(
        files: &[FileSize],
        footprints: &mut [Footprint],
        names: &Arc<Names>,
    ) -> Items {
        let source_names = source_names(footprints, names);
        let host = names.of(b"host");
        let mut list = Vec::with_capacity(
            footprints
                .iter()
                .map(|footprint| footprint.leaves.len())
                .sum(),
        );
        let mut parts = HashMap::new();
        let mut first = 0;
        for (file, footprint) in files.iter().zip(footprints) {
            let file = names.of(file.file.as_bytes());
            for leaf in std::mem::take(&mut footprint.leaves) {
                let label = leaf.label;
                if label.part == Part::LeftOut {
                    continue;
                }
                let image = label
                    .image
                    .place()
                    .and_then(|image| footprint.images.get(image));
                let part = *parts
                    .entry(label.part)
                    .or_insert_with(|| names.of(label.part.name().as_bytes()));
                let arch = match image {
                    Some(image) => image.arch,
                    None if label.container == Name::NONE || label.part != Part::Container => host,
                    None => Name::NONE,
                };
                let kernel = source_names.get(&label.kernel).copied().unwrap_or_default();
                let kind = image.map_or(label.kind, |image| image.kind);
                let (template, kernel) = (kernel.template, kernel.kernel);
                let keys = [
                    file,
                    arch,
                    kind,
                    label.container,
                    label.unit,
                    template,
                    kernel,
                    label.section,
                    part,
                    label.member,
                ];
                list.push(Item {
                    keys,
                    image: label.image.after(first),
                    file: leaf.file,
                    inflated: leaf.inflated,
                });
            }
            first += footprint.images.len();
        }
        // Several kernels may have the same name in the source (`_Z1fv` and `_ZL1fv`). The first
        // mangled name in alphabetical order represents all of them, so that the result is
        // deterministic.
        let mut in_image: Vec<(Name, Arc<str>)> = source_names
            .keys()
            .map(|mangled| (*mangled, names.text(*mangled)))
            .collect();
        in_image.sort_unstable_by(|(_, one), (_, other)| one.cmp(other));
        let mut mangled = HashMap::new();
        for (name, source_names) in in_image
            .iter()
            .filter_map(|(name, _)| Some((*name, source_names.get(name)?)))
        {
            mangled.entry(source_names.kernel).or_insert(name);
        }
        Items {
            list,
            names: Arc::clone(names),
            host,
            mangled,
        }
    }

    /// Keeps only items whose kernel, translation unit, section or architecture is `wanted`.
    pub fn keep(&mut self, wanted: impl Fn(&str) -> bool) {
        const LEVELS: [Level; 5] = [
            Level::Kernel,
            Level::Unit,
            Level::Section,
            Level::Arch,
            Level::Template,
        ];
        let mut known: HashMap<Name, bool> = HashMap::new();
        let (names, mangled) = (&self.names, &self.mangled);
        self.list.retain(|item| {
            LEVELS
                .into_iter()
                .map(|level| item.key(level))
                .filter(|key| *key != Name::NONE)
                .any(|key| {
                    let text = |name: Name| wanted(&names.text(name));
                    *known.entry(key).or_insert_with(|| {
                        text(key) || mangled.get(&key).is_some_and(|mangled| text(*mangled))
                    })
                })
        });
    }

    /// Gives renamed kernels the names that they have in `new`, so that each is compared with its
    /// earlier version, as in `offld diff`.
    pub fn match_renamed(&mut self, new: &Items) {
        let kernels = |items: &Items| {
            let mut by_arch: BTreeMap<Name, BTreeMap<Arc<str>, Name>> = BTreeMap::new();
            for item in &items.list {
                let kernel = item.key(Level::Kernel);
                if kernel != Name::NONE {
                    let arch = by_arch.entry(item.key(Level::Arch)).or_default();
                    arch.entry(items.text(kernel)).or_insert(kernel);
                }
            }
            by_arch
        };
        let (olds, mut news) = (kernels(self), kernels(new));
        let mut renamed: HashMap<(Name, Name), Name> = HashMap::new();
        for (arch, old) in olds {
            let new = news.remove(&arch).unwrap_or_default();
            let only = |own: &BTreeMap<Arc<str>, Name>, other: &BTreeMap<Arc<str>, Name>| {
                let own = own.keys().filter(|name| !other.contains_key(*name));
                own.map(|name| name.to_string()).collect::<Vec<_>>()
            };
            let (gone, added) = (only(&old, &new), only(&new, &old));
            for (from, to) in renames(&gone, &added) {
                let from = gone.get(from).and_then(|name| old.get(&**name));
                let to = added.get(to).and_then(|name| new.get(&**name));
                if let Some((from, to)) = from.zip(to) {
                    renamed.insert((arch, *from), *to);
                }
            }
        }
        if renamed.is_empty() {
            return;
        }
        let of_kernel = |item: &Item| (item.key(Level::Kernel), item.key(Level::Template));
        let templates: HashMap<Name, Name> = new.list.iter().map(of_kernel).collect();
        for item in &mut self.list {
            let key = (item.key(Level::Arch), item.key(Level::Kernel));
            if let Some(kernel) = renamed.get(&key) {
                item.keys[Level::Kernel as usize] = *kernel;
                if let Some(template) = templates.get(kernel) {
                    item.keys[Level::Template as usize] = *template;
                }
            }
        }
    }

    /// The text of a name.
    pub(crate) fn text(&self, name: Name) -> Arc<str> {
        self.names.text(name)
    }
}

/// Parses a pattern for [`Items::keep`]. It matches bytes, and ignores the case of ASCII letters.
///
/// # Errors
/// `text` is not a regular expression.
pub fn pattern(text: &str) -> Result<Regex, regex::Error> {
    RegexBuilder::new(text)
        .case_insensitive(true)
        .unicode(false)
        .build()
}

/// The source names of all kernels of the footprints.
fn source_names(footprints: &[Footprint], names: &Names) -> HashMap<Name, SourceNames> {
    let mut kernels: Vec<Name> = footprints
        .iter()
        .flat_map(|footprint| &footprint.leaves)
        .map(|leaf| leaf.label.kernel)
        .collect();
    kernels.sort_unstable();
    kernels.dedup();
    let each = kernels
        .into_par_iter()
        .filter(|kernel| *kernel != Name::NONE);
    each.map(|kernel| (kernel, SourceNames::of(kernel, &names.text(kernel), names)))
        .collect()
}

impl SourceNames {
    /// The source names of `kernel`, whose name in images is `mangled`.
    fn of(kernel: Name, mangled: &str, names: &Names) -> SourceNames {
        let Some(name) = SourceName::of(mangled) else {
            return SourceNames {
                kernel,
                template: names.of(template_of(mangled).as_bytes()),
            };
        };
        let source = names.of(name.to_string().as_bytes());
        let template = SourceName {
            function: template_of(&name.function).to_owned(),
            ..name
        };
        SourceNames {
            kernel: source,
            template: names.of(template.to_string().as_bytes()),
        }
    }
}

impl Items {
    /// Converts the names of OpenMP regions: offld 0.9 and earlier saved names with the prefix of
    /// the image.
    pub(super) fn rename_regions(&mut self) {
        const OLD: &str = "__omp_offloading_";
        let mut known: HashMap<Name, Option<SourceNames>> = HashMap::new();
        let mut in_image = HashMap::new();
        for item in &mut self.list {
            let kernel = item.key(Level::Kernel);
            let renamed = *known.entry(kernel).or_insert_with(|| {
                let text = self.names.text(kernel);
                let mangled = self.mangled.get(&kernel).copied().unwrap_or(kernel);
                let source_names = text
                    .starts_with(OLD)
                    .then(|| SourceNames::of(kernel, &self.names.text(mangled), &self.names))?;
                in_image.entry(source_names.kernel).or_insert(mangled);
                Some(source_names)
            });
            if let Some(SourceNames { kernel, template }) = renamed {
                item.keys[Level::Kernel as usize] = kernel;
                item.keys[Level::Template as usize] = template;
            }
        }
        self.mangled.extend(in_image);
    }
}

// Names of C++ functions without the parts that distinguish template instances and overloads.

/// Returns `name` without the return type, the parameters, and the template arguments at its end:
/// `ns::kernel` for `void ns::kernel<float, 3>(float*)`. A name without parameters loses only
/// template arguments.
fn template_of(name: &str) -> &str {
    let bytes = name.as_bytes();
    let end = parameters(bytes).unwrap_or(bytes.len());
    let end = before_arguments(bytes, end);
    let start = after_type(bytes, end);
    match name.get(start..end) {
        Some(found) if !found.trim().is_empty() => found.trim(),
        _ => name,
    }
}

/// The start of the parameter list: the first parenthesis outside of all brackets that is not a
/// part of the name.
fn parameters(name: &[u8]) -> Option<usize> {
    let mut depth = 0usize;
    let mut at = 0;
    while let Some(byte) = name.get(at) {
        let rest = &name[at..];
        let starts_word = at == 0 || !is_letter(name[at - 1]);
        if let Some(operator) = operator(rest).filter(|_| starts_word) {
            at += operator;
            continue;
        }
        match byte {
            b'(' if depth == 0 => {
                // `(anonymous namespace)::` and `f(int) const::` are parts of the name.
                let close = closing(name, at)?;
                if name.get(close + 1..).is_some_and(leads_on) {
                    at = close;
                } else {
                    return Some(at);
                }
            }
            b'<' | b'(' | b'[' | b'{' => depth += 1,
            b'>' if at > 0 && name[at - 1] == b'-' => {}
            b'>' | b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        at += 1;
    }
    None
}

fn is_letter(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || !byte.is_ascii()
}

/// Whether a name continues after a parenthesis: with `::`, possibly after the qualifier of a
/// function.
fn leads_on(after: &[u8]) -> bool {
    [
        &b"::"[..],
        b" const::",
        b" volatile::",
        b" const volatile::",
    ]
    .into_iter()
    .any(|start| after.starts_with(start))
}

/// The length of an operator's name with brackets in it (`operator<`, `operator()`), if `rest`
/// begins with one.
fn operator(rest: &[u8]) -> Option<usize> {
    const OPERATORS: [&[u8]; 10] = [
        b"()", b"<<=", b">>=", b"<=>", b"<<", b">>", b"<=", b">=", b"->", b"<",
    ];
    let after = rest.strip_prefix(b"operator")?;
    let found = OPERATORS
        .into_iter()
        .chain([&b">"[..], b"[]"])
        .find(|operator| after.starts_with(operator))?;
    Some("operator".len() + found.len())
}

/// The position of the parenthesis that closes the one at `open`.
fn closing(name: &[u8], open: usize) -> Option<usize> {
    let mut depth = 0usize;
    for (at, byte) in name.iter().enumerate().skip(open) {
        match byte {
            b'(' => depth += 1,
            b')' => {
                depth -= 1;
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
    None
}

/// The start of the template arguments that end at `end`; `end` if there are none.
fn before_arguments(name: &[u8], end: usize) -> usize {
    let shown = name.get(..end).unwrap_or_default().trim_ascii_end();
    if !shown.ends_with(b">")
        || shown.ends_with(b"operator>")
        || shown.ends_with(b"operator->")
        || shown.ends_with(b"operator>>")
    {
        return shown.len();
    }
    let mut depth = 0usize;
    for (at, byte) in shown.iter().enumerate().rev() {
        match byte {
            b'>' if at > 0 && shown[at - 1] == b'-' => {}
            b'>' => depth += 1,
            b'<' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return shown[..at].trim_ascii_end().len();
                }
            }
            _ => {}
        }
    }
    shown.len()
}

/// The start of the name after the return type: after the last blank outside of all brackets.
fn after_type(name: &[u8], end: usize) -> usize {
    let mut depth = 0usize;
    for (at, byte) in name.iter().enumerate().take(end).rev() {
        match byte {
            b'>' | b')' | b']' | b'}' => depth += 1,
            b'<' | b'(' | b'[' | b'{' => depth = depth.saturating_sub(1),
            b' ' if depth == 0 && !name[..at].ends_with(b"operator") && !leads_on(&name[at..]) => {
                return at + 1;
            }
            _ => {}
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instances_and_overloads_have_the_name_of_their_template() {
        for (name, wanted) in [
            ("void ns::kernel<float, 3>(float*)", "ns::kernel"),
            ("add(int*, int)", "add"),
            ("kernel", "kernel"),
            (
                "void (anonymous namespace)::softmax<float, (int)4>(float const*)",
                "(anonymous namespace)::softmax",
            ),
            (
                "void gen<S, &(unsigned int f(S*))>(S*, unsigned long)",
                "gen",
            ),
            (
                "void ns::A<int>::run<float>(void (*)(int))",
                "ns::A<int>::run",
            ),
            ("bool ns::operator< <int>(ns::A, ns::A)", "ns::operator<"),
            ("ns::A::operator()(int) const", "ns::A::operator()"),
            ("std::vector<int>* make<std::pair<int, float> >()", "make"),
            (
                "__omp_offloading_fd_1234_main_l12",
                "__omp_offloading_fd_1234_main_l12",
            ),
            (
                "__omp_offloading_fd_1234_ns::f(int*)_l12",
                "__omp_offloading_fd_1234_ns::f",
            ),
            ("", ""),
            ("<<<", "<<<"),
            // A name that ends like that of an operator.
            ("void run<my_operator<int>, (Kind)3>(int*)", "run"),
            ("void scan_operator<int>(int*)", "scan_operator"),
            // A lambda in a function with a qualifier.
            (
                "void A::run(int) const::{lambda(int)#1}::operator()<int>(int) const",
                "A::run(int) const::{lambda(int)#1}::operator()",
            ),
            (
                "A::run(int) const::'lambda'(int)::operator()(int) const",
                "A::run(int) const::'lambda'(int)::operator()",
            ),
        ] {
            assert_eq!(template_of(name), wanted, "{name}");
        }
    }
}
