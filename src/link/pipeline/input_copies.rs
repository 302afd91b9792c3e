//! Copies of inputs for the host link.
//!
//! With `--wrapper-stable-names=objects`, the inputs get stable names: the lengths of clang's names
//! differ between checkouts, and linkers sort symbols by their names. So two programs are identical
//! only if their objects have stable names before the link.
//!
//! Archive members that a linker would not extract become objects of their own.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Cursor;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use super::Link;
use super::late::NamesNotPut;
use super::line_inputs::input_specs;
use crate::args::settings::{InputSpec, KernelNames};
use crate::link::host::Place;
use crate::link::inputs::{InputFile, Inputs, Loaded, map_all};
use offld_system::session::Session;
use offload_formats::archive::{self, MemberContents, NewMember};
use offload_formats::magic::{Magic, magic};
use offload_formats::stable_names::StableNames;
use offload_formats::{bitcode, elf::rename as elf};

/// The copies of inputs.
#[derive(Debug, Default)]
pub(super) struct Copies {
    /// The paths of copies, by the token of the command line that names the input.
    pub(super) by_token: BTreeMap<usize, PathBuf>,
    /// Archive members that the host link gets as objects ([`Selection::extracted`]).
    ///
    /// [`Selection::extracted`]: crate::link::select::Selection::extracted
    pub(super) members: Vec<PathBuf>,
    /// Each copy with its input, which is the archive for a member.
    pub(super) inputs: Vec<(PathBuf, PathBuf)>,
}

impl Copies {
    /// Writes the archive members `extracted` as objects.
    ///
    /// # Errors
    /// A file cannot be written.
    pub(super) fn extract(
        &mut self,
        inputs: &Inputs,
        extracted: &[usize],
        session: &Session,
    ) -> Result<()> {
        for object in extracted.iter().map(|&object| &inputs.objects[object]) {
            let path = session.scratch.path("member", "o")?;
            std::fs::write(&path, object.data())
                .with_context(|| format!("cannot write `{}`", path.display()))?;
            self.members.push(path.clone());
            self.inputs
                .push((path, inputs.files[object.file].path.clone()));
        }
        Ok(())
    }
}

impl Link<'_> {
    /// Writes copies of the inputs with stable `names`. Returns none if the program gets the names
    /// after its link: the user has not requested copies, or an input cannot be copied.
    ///
    /// # Errors
    /// A copy cannot be written, or no copies are made and the program cannot get the names either.
    pub(super) fn copies(&self, inputs: &Inputs, names: &StableNames) -> Result<Option<Copies>> {
        if names.is_empty() || self.settings.run.kernel_names.get()? != KernelNames::InObjects {
            return Ok(None);
        }
        if self.settings.host.relocatable {
            // Another object with kernels of the same names would have the same symbols, and a
            // later link would take one for both.
            self.session.shell.warn(
                "the output depends on the location of its source files: with -r, symbols keep the names of clang (--wrapper-stable-names=objects)",
            );
            return self.no_copies();
        }
        let size = |file: &InputFile| file.size();
        let renamed = map_all(&inputs.files, size, |index, file| {
            let copy = || match archive::is_thin(file.data()) {
                true => not_in_members(inputs, index, names).map(|()| None),
                false => renamed(file.kind, file.data(), names),
            };
            copy().with_context(|| format!("`{}`", file.path.display()))
        });
        let named = self.tokens_of(inputs);
        let (mut new, mut why) = (Vec::new(), None);
        for (index, renamed) in renamed.into_iter().enumerate() {
            match (renamed, named.get(&index)) {
                (Ok(None), _) => {}
                (Ok(Some(bytes)), Some(Some(tokens))) => new.push((index, tokens, bytes)),
                (Ok(Some(_)), _) => {
                    let path = inputs.files[index].path.display();
                    why = Some(format!(
                        "`{path}` is named by a linker script or an object: name it on the command line instead"
                    ));
                }
                (Err(error), _) => why = Some(format!("{error:#}")),
            }
        }
        if let Some(why) = why {
            self.session.shell.warn(&format!(
                "the output depends on the location of its source files, because an input cannot be copied (--wrapper-stable-names=objects): {why}"
            ));
            return self.no_copies();
        }
        let mut copies = Copies::default();
        for (index, tokens, bytes) in new {
            let file = &inputs.files[index];
            let name = file.path.file_stem().unwrap_or_default().to_string_lossy();
            let extension = if file.kind == Magic::Archive {
                "a"
            } else {
                "o"
            };
            let path = self.session.scratch.path(&name, extension)?;
            std::fs::write(&path, bytes)
                .with_context(|| format!("cannot write `{}`", path.display()))?;
            let tokens = tokens.iter().map(|token| (*token, path.clone()));
            copies.by_token.extend(tokens);
            copies.inputs.push((path, file.path.clone()));
        }
        Ok(Some(copies))
    }

    /// Returns no copies, so that the program gets the names after its link.
    ///
    /// # Errors
    /// The output cannot be changed after the link.
    fn no_copies(&self) -> Result<Option<Copies>> {
        match Place::of(self.output, &|_| false) {
            Ok(_) => Ok(None),
            Err(why) => Err(NamesNotPut(why).into()),
        }
    }

    /// The tokens that name each file; none for a file that a linker script or an object names.
    fn tokens_of(&self, inputs: &Inputs) -> BTreeMap<usize, Option<BTreeSet<usize>>> {
        let specs = input_specs(self.settings, &self.search);
        let direct: BTreeSet<(usize, usize)> = specs
            .iter()
            .zip(&inputs.named)
            .filter_map(|(spec, named)| Some(((*named)?, spec.token)))
            .collect();
        let mut all = BTreeMap::new();
        for load in &inputs.loads {
            let Loaded::File(file) = load.what else {
                continue;
            };
            let tokens = all.entry(file).or_insert_with(|| Some(BTreeSet::new()));
            if direct.contains(&(file, load.token)) && load.token != InputSpec::NO_TOKEN {
                if let Some(tokens) = tokens {
                    tokens.insert(load.token);
                }
            } else {
                *tokens = None;
            }
        }
        all
    }
}

/// The input `data` with stable `names`; none if it has no ID to replace.
///
/// # Errors
/// The input cannot be renamed.
fn renamed(kind: Magic, data: &[u8], names: &StableNames) -> Result<Option<Vec<u8>>> {
    match kind {
        Magic::Elf => Ok(elf::rename(data, names)?),
        // The names in its offload entries are constants, which are not renamed.
        Magic::Bitcode => match bitcode::rename(data, names)? {
            Some(_) => bail!("host bitcode: compile it without `-flto`"),
            None => Ok(None),
        },
        Magic::Archive => renamed_archive(data, names),
        _ => Ok(None),
    }
}

/// Fails if a member of the thin archive with the index `archive` has an ID to replace.
fn not_in_members(inputs: &Inputs, archive: usize, names: &StableNames) -> Result<()> {
    let mut members = inputs
        .objects
        .iter()
        .filter(|object| object.file == archive);
    if members.any(|member| names.is_in(member.data())) {
        bail!("a thin archive: create it without `--thin`");
    }
    Ok(())
}

fn renamed_archive(data: &[u8], names: &StableNames) -> Result<Option<Vec<u8>>> {
    if !names.is_in(data) {
        return Ok(None);
    }
    let (mut members, mut is_changed) = (Vec::new(), false);
    for member in archive::members(data)? {
        let member = member?;
        let name = std::str::from_utf8(member.name).context("the name of a member is not UTF-8")?;
        let MemberContents::Within { offset, size } = member.contents else {
            bail!("a thin archive: create it without `--thin`");
        };
        let contents = usize::try_from(offset)
            .ok()
            .zip(usize::try_from(size).ok())
            .and_then(|(start, size)| data.get(start..)?.get(..size))
            .with_context(|| format!("the member `{name}` is damaged"))?;
        let new = renamed(magic(contents), contents, names).with_context(|| name.to_owned())?;
        is_changed |= new.is_some();
        members.push(NewMember {
            name: name.to_owned(),
            bytes: match new {
                Some(new) => Box::new(new),
                None => Box::new(contents),
            },
        });
    }
    if !is_changed {
        return Ok(None);
    }
    let mut out = Cursor::new(Vec::new());
    archive::write(members, &mut out)?;
    Ok(Some(out.into_inner()))
}
