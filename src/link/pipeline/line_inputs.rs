//! Files and directories that a command line names: its inputs, the default libraries that Windows
//! objects name in turn, the search directories, and the output. Also the order in which the host
//! linker reads the command line.

use std::borrow::Cow;
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::{Context, Result};
use rustix::io::Errno;

use super::{Link, Scanned};
use crate::args::link_exe;
use crate::args::settings::{Defsym, HostOptions, InputName, InputSpec, LinkSettings};
use crate::link::inputs::search::{Naming, Search};
use crate::link::inputs::{self, Inputs, Loaded, LoadedFile, ScriptSymbols};
use crate::link::scan::{HostFacts, Machine, SharedSymbols};
use crate::link::select::{Load, Reading, SelectOptions, SharedLibrary};
use crate::link::{device, host, scan};
use crate::toolchain::{self, LinkerFamily};
use offload_formats::error::{StepFailed, strerror};
use offload_formats::model::{printable, printable_name};

/// Returns the inputs of the command line. For Windows, also returns the default libraries that the
/// objects name in turn, which linkers search after all others. Inputs that cannot be read are
/// ignored here: opening them later reports the error.
pub(super) fn input_specs<'r>(settings: &'r LinkSettings, search: &Search) -> Cow<'r, [InputSpec]> {
    let mut specs = Cow::Borrowed(settings.inputs.as_slice());
    if host::naming(settings) == Naming::Unix || settings.host.no_default_libraries {
        return specs;
    }
    let left_out = |name: &OsStr| {
        settings
            .host
            .without_libraries
            .iter()
            .any(|without| link_exe::is_left_out(name, without))
    };
    let mut known = HashSet::new();
    let mut named = settings.host.default_libraries.clone();
    loop {
        named.retain(|name| known.insert(name.to_ascii_lowercase()) && !left_out(name));
        named.retain(|name| search.library(name, false).is_some());
        specs.to_mut().extend(
            named
                .into_iter()
                .map(InputName::Library)
                .map(InputSpec::requested),
        );
        let Ok(inputs) = inputs::open(&specs, search, &mut |_, _| {}) else {
            return specs;
        };
        named = scan::default_libraries(&inputs)
            .into_iter()
            .map(OsString::from)
            .collect();
        if named
            .iter()
            .all(|name| known.contains(&name.to_ascii_lowercase()))
        {
            return specs;
        }
    }
}

/// The files that the command line names as inputs.
pub(super) fn files(settings: &LinkSettings) -> impl Iterator<Item = &Path> {
    settings.inputs.iter().filter_map(|spec| match &spec.name {
        InputName::File(path) => Some(path.as_path()),
        InputName::Library(_) | InputName::Script(_) => None,
    })
}

impl Link<'_> {
    /// In a dry run, reports inputs that the host linker would not find or could not read, as a
    /// real link does.
    pub(super) fn check_shown(&self, opened: &Inputs) -> Result<()> {
        let Link {
            settings,
            search,
            linker,
            ..
        } = self;
        if !settings.run.dry_run {
            return Ok(());
        }
        let mut faults: Vec<String> = Vec::new();
        for (index, spec) in settings.inputs.iter().enumerate() {
            match &spec.name {
                InputName::File(name) => faults.extend(unreadable(&search.file(name), name)),
                // offld adds the directory of the OpenMP runtime later, if the link needs one.
                InputName::Library(name) if host::may_add_directory_of(settings, name) => {}
                InputName::Library(name) if opened.missing.contains(&index) => {
                    // Linkers with Microsoft's search rules may have built-in directories that
                    // offld does not know.
                    let is_known = host::naming(settings) != Naming::LinkExe;
                    if !device::linker_finds(linker, settings, name).unwrap_or(!is_known) {
                        faults.push(format!(
                            "unable to find library -l{}: no -L directory has it",
                            printable(&name.to_string_lossy())
                        ));
                    }
                }
                InputName::Library(_) => {}
                InputName::Script(script) => {
                    let found = if script.exists() {
                        script.clone()
                    } else {
                        search.exact(script).unwrap_or(script.clone())
                    };
                    faults.extend(unreadable(&found, script));
                }
            }
        }
        let mut seen = HashSet::new();
        faults.retain(|fault| seen.insert(fault.clone()));
        if faults.is_empty() {
            Ok(())
        } else {
            Err(StepFailed::new(faults.join("\n"), 1).into())
        }
    }
}

impl Link<'_> {
    /// Returns the parts of the command line and of its scripts that decide which archive members
    /// are linked.
    pub(super) fn select_options(&self, scanned: &Scanned<'_>) -> Result<SelectOptions> {
        let HostOptions {
            undefined,
            entries,
            defsyms,
            undefined_globs,
            wrapped_symbols,
            alternate_names,
            entry_is_named,
            ..
        } = &self.settings.host;
        let Scanned {
            inputs,
            images,
            facts,
        } = *scanned;
        let is_coff = facts
            .iter()
            .any(|facts| matches!(facts.machine, Some(Machine::Coff(_))));
        let has_members = scan::needs_members(images, inputs);
        // Without archive members, the reading order does not matter.
        let family = (has_members && !is_coff).then(|| toolchain::linker_family(&self.linker));
        let reading = family.map_or(Reading::AnyOrder, reading);
        // GNU ld needs the symbols of `--defsym` only from its position on the command line on.
        // gold needs them from the beginning.
        let in_place = family == Some(LinkerFamily::Gnu);
        // All linkers but gold ignore ENTRY in scripts if the line has an `-e`.
        let entry_is_given = !entries.is_empty();
        let needs = |load: &LoadedFile| script_needs(inputs, load, family, entry_is_given);
        let (loads, shared) = if has_members {
            loads(inputs, defsyms.iter().filter(|_| in_place), &needs)
        } else {
            Default::default()
        };
        let coff_entries = (is_coff && !entry_is_named).then(link_exe::default_entries);
        let scripts = || inputs.scripts.iter();
        // ld.lld needs the symbols of `-e`, `--defsym` and assignments only after it has read all
        // files. If `-u` or EXTERN names one of them, too, ld.lld needs it before all files.
        let is_late = reading == Reading::Remembering;
        let of_defsyms = defsyms.iter().flat_map(|defsym| &defsym.needs);
        let of_defsyms = of_defsyms.filter(|_| !in_place && !is_late);
        let of_scripts = inputs.loads.iter().flat_map(|load| needs(load).first);
        let provided_at_end = inputs
            .loads
            .iter()
            .flat_map(|load| needs(load).provided_at_end);
        let entries_of_scripts = scripts()
            .filter(|_| !entry_is_given)
            .flat_map(|script| &script.entries);
        Ok(SelectOptions {
            should_extract: self.settings.device.should_extract.clone(),
            roots: undefined
                .iter()
                .chain(entries.iter().filter(|_| !is_late))
                .chain(of_defsyms)
                .cloned()
                .chain(of_scripts)
                .chain(coff_entries.into_iter().flatten())
                .collect(),
            late_roots: entries
                .iter()
                .chain(entries_of_scripts)
                .chain(assigned_in_line_order(inputs, defsyms))
                .filter(|_| is_late)
                .cloned()
                .collect(),
            globs: globs(undefined_globs)?,
            shared,
            reading,
            // Linkers of Windows objects extract no members for common symbols.
            keeps_common: is_coff || family.is_some_and(|family| self.keeps_common(family, facts)),
            loads,
            extracted: Vec::new(),
            shared_output: self.settings.host.shared,
            relocatable: self.settings.host.relocatable,
            wrapped: wrapped_symbols.clone(),
            alternate_names: alternate_names
                .iter()
                .cloned()
                .chain(provided_at_end)
                .collect(),
        })
    }

    /// Whether the host linker extracts no archive members for common symbols. In ld.lld, this is
    /// the default since LLVM 15, although its help says otherwise.
    fn keeps_common(&self, family: LinkerFamily, facts: &[HostFacts<'_>]) -> bool {
        match family {
            LinkerFamily::Gold | LinkerFamily::Wild => true,
            LinkerFamily::Gnu | LinkerFamily::Mold | LinkerFamily::Other => false,
            LinkerFamily::Lld => match self.settings.host.fortran_common {
                Some(extracts) => !extracts,
                // `lld_release` may start ld.lld, so it is called only if there are common symbols.
                None => {
                    let has_common =
                        |facts: &HostFacts<'_>| facts.defined.iter().any(|symbol| symbol.common);
                    !facts.iter().any(has_common)
                        || toolchain::lld_release(&self.linker).is_none_or(|release| release >= 15)
                }
            },
        }
    }
}

/// Returns the reason why the host linker cannot read the file at `path`, whose name on the command
/// line is `name`.
fn unreadable(path: &Path, name: &Path) -> Option<String> {
    // Only regular files are opened: opening a pipe may block, and its contents can be read only
    // once.
    let tried = std::fs::metadata(path).and_then(|meta| match () {
        () if meta.is_dir() => Err(Errno::ISDIR.into()),
        () if meta.is_file() => File::open(path).map(drop),
        () => Ok(()),
    });
    tried.err().map(|error| {
        format!(
            "cannot open the input '{}': {}",
            printable(&name.to_string_lossy()),
            strerror(&error)
        )
    })
}

/// Returns the search path for libraries: the directories of the command line, for link.exe those
/// of `LIB`, and the built-in ones.
pub(super) fn search(settings: &LinkSettings) -> Search {
    let naming = host::naming(settings);
    let mut folders = settings.host.library_dirs.clone();
    if naming == Naming::LinkExe {
        let lib = settings.host.lib.as_deref().unwrap_or_default();
        folders.extend(
            lib.as_bytes()
                .split(|byte| *byte == b';')
                .filter(|part| !part.is_empty())
                .map(|part| OsStr::from_bytes(part).into()),
        );
    }
    Search::new(
        &folders,
        settings.host.sysroot.as_deref(),
        naming,
        &host::multiarch(settings),
    )
}

/// The output's path as the user gave it, or the linker's default.
pub(super) fn out_name(settings: &LinkSettings) -> &Path {
    let windows = host::naming(settings) != Naming::Unix;
    settings
        .output
        .as_deref()
        .unwrap_or(Path::new(if windows { "a.exe" } else { "a.out" }))
}

/// Returns the reading order of the host linker.
fn reading(family: LinkerFamily) -> Reading {
    match family {
        LinkerFamily::Gnu | LinkerFamily::Gold => Reading::InTurn,
        LinkerFamily::Lld => Reading::Remembering,
        // wild extracts an archive member even if a later object has a weak definition of the
        // symbol.
        LinkerFamily::Mold | LinkerFamily::Wild | LinkerFamily::Other => Reading::AnyOrder,
    }
}

/// The symbols of a linker script for which the host linker searches archives.
#[derive(Default)]
struct ScriptNeeds {
    /// Those that it needs before it reads any file.
    first: Vec<String>,
    /// Those that it needs from the script's position on.
    in_place: Vec<String>,
    /// Symbols of PROVIDE, each with a symbol in its expression. The linker needs the latter if the
    /// former is undefined at the script's position.
    provided_in_place: Vec<(String, String)>,
    /// The same for a linker that decides after it has read all files.
    provided_at_end: Vec<(String, String)>,
}

/// Returns the symbols that a mention of a script needs. `entry_is_given`: the line has an `-e`.
fn script_needs(
    inputs: &Inputs,
    load: &LoadedFile,
    family: Option<LinkerFamily>,
    entry_is_given: bool,
) -> ScriptNeeds {
    let Loaded::Script(script) = load.what else {
        return ScriptNeeds::default();
    };
    let ScriptSymbols {
        external,
        entries,
        assigned,
        asserted,
        provided,
    } = &inputs.scripts[script];
    let entries_unless_given = if entry_is_given { &[] } else { &entries[..] };
    // gold and wild need the symbols in the expressions of PROVIDE in any case.
    let of_provide: &Vec<String> = &provided.iter().map(|(_, needed)| needed.clone()).collect();
    match family {
        // GNU ld searches for the symbols of ENTRY only if `-T` names the script, and never for
        // those of ASSERT.
        Some(LinkerFamily::Gnu) if load.by_option => ScriptNeeds {
            first: [external, entries_unless_given].concat(),
            in_place: assigned.clone(),
            provided_in_place: provided.clone(),
            ..ScriptNeeds::default()
        },
        Some(LinkerFamily::Gnu) => ScriptNeeds {
            in_place: [&external[..], assigned].concat(),
            provided_in_place: provided.clone(),
            ..ScriptNeeds::default()
        },
        // gold reads a script that `-T` names before all files, and needs its ENTRY beside `-e`,
        // too. In other scripts, it ignores ENTRY.
        Some(LinkerFamily::Gold) if load.by_option => ScriptNeeds {
            first: [&external[..], entries, assigned, asserted, of_provide].concat(),
            ..ScriptNeeds::default()
        },
        Some(LinkerFamily::Gold) => ScriptNeeds {
            in_place: [&external[..], assigned, asserted, of_provide].concat(),
            ..ScriptNeeds::default()
        },
        Some(LinkerFamily::Wild) => ScriptNeeds {
            first: [external, entries_unless_given, assigned, of_provide].concat(),
            ..ScriptNeeds::default()
        },
        // ld.lld needs the others after it has read all files (`SelectOptions::late_roots`).
        Some(LinkerFamily::Lld) => ScriptNeeds {
            first: external.clone(),
            provided_at_end: provided.clone(),
            ..ScriptNeeds::default()
        },
        _ => ScriptNeeds {
            first: [external, entries_unless_given, assigned, asserted].concat(),
            provided_at_end: provided.clone(),
            ..ScriptNeeds::default()
        },
    }
}

/// Returns the symbols that `--defsym` and the scripts' assignments and ASSERT need, in the order
/// of the command line. Which member ld.lld extracts first decides between weak definitions.
fn assigned_in_line_order<'r>(
    inputs: &'r Inputs,
    defsyms: &'r [Defsym],
) -> impl Iterator<Item = &'r String> {
    let of_defsyms = defsyms.iter().map(|defsym| (defsym.token, &defsym.needs));
    let of_scripts = inputs.loads.iter().filter_map(|load| match load.what {
        Loaded::Script(script) => Some((load.token, &inputs.scripts[script])),
        Loaded::File(_) => None,
    });
    let of_scripts =
        of_scripts.flat_map(|(token, of)| [(token, &of.assigned), (token, &of.asserted)]);
    let mut needs: Vec<_> = of_defsyms.chain(of_scripts).collect();
    needs.sort_by_key(|(token, _)| *token);
    needs.into_iter().flat_map(|(_, needs)| needs)
}

/// Returns the files in the linker's reading order, with each of `defsyms` at its position. `needs`:
/// the symbols that a script needs. Also returns the symbols of the shared libraries among the
/// files.
fn loads<'r>(
    inputs: &Inputs,
    defsyms: impl Iterator<Item = &'r Defsym>,
    needs: &dyn Fn(&LoadedFile) -> ScriptNeeds,
) -> (Vec<Load>, Vec<SharedLibrary>) {
    let mut objects = vec![0..0; inputs.files.len()];
    for (index, object) in inputs.objects.iter().enumerate() {
        let own = &mut objects[object.file];
        *own = if own.start == own.end {
            index..index + 1
        } else {
            own.start..index + 1
        };
    }
    let symbols = scan::shared_symbols(inputs);
    let load = |load: &LoadedFile| {
        let (as_needed, group) = (load.as_needed, load.group);
        match load.what {
            Loaded::File(file) => {
                let library = symbols.iter().position(|(own, _)| *own == file);
                Load {
                    objects: objects[file].clone(),
                    library,
                    as_needed,
                    group,
                    ..Load::default()
                }
            }
            Loaded::Script(_) => {
                let needs = needs(load);
                Load {
                    needs: needs.in_place,
                    provided: needs.provided_in_place,
                    group,
                    ..Load::default()
                }
            }
        }
    };
    let library = |(file, symbols): &(usize, SharedSymbols)| SharedLibrary {
        name: printable_name(inputs.files[*file].path.as_os_str().as_encoded_bytes()),
        defines: symbols.defines.clone(),
        needs: symbols.needs.clone(),
    };
    let mut loads: Vec<Load> = Vec::with_capacity(inputs.loads.len());
    let mut defsyms = defsyms.peekable();
    let of_defsym = |defsym: &Defsym| Load {
        needs: defsym.needs.clone(),
        group: defsym.group,
        ..Load::default()
    };
    for file in &inputs.loads {
        while let Some(defsym) = defsyms.next_if(|defsym| defsym.token < file.token) {
            loads.push(of_defsym(defsym));
        }
        loads.push(load(file));
    }
    loads.extend(defsyms.map(of_defsym));
    (loads, symbols.iter().map(library).collect())
}

/// Returns the patterns of `--undefined-glob`. In ld.lld's syntax they may be quoted, and `^`
/// negates.
fn globs(patterns: &[String]) -> Result<Vec<glob::Pattern>> {
    let pattern = |text: &String| {
        let quoted = text
            .strip_prefix('"')
            .and_then(|text| text.strip_suffix('"'));
        let mut plain = quoted.map_or_else(|| text.replace("[^", "[!"), glob::Pattern::escape);
        while plain.contains("**") {
            plain = plain.replace("**", "*");
        }
        glob::Pattern::new(&plain).with_context(|| format!("--undefined-glob={text}"))
    };
    patterns.iter().map(pattern).collect()
}
