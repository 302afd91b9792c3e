//! Registration objects: from the cache, or generated. The key of an object contains its plan, with
//! the images that are part of it, and the program that generates it. The object is host code that
//! runs before `main`, so a shared cache is used for it only if its entries are signed
//! (`OFFLD_CACHE_KEY`).
//!
//! A note in the first object names the linker of the device code. Cached objects have no note, so
//! that links with other compilers share them.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};

use super::RegisterContext;
use crate::formats::compose::join;
use crate::formats::elf::link_note::{self, LinkedBy};
use crate::link::device::Tool;
use crate::link::payload::Payload;
use crate::llvm::protocol::{BUILD, Form, Request};
use crate::llvm::{Purpose, program};
use crate::model::{Generation, ObjectFormat, OffloadKind};
use crate::registration::{Plan, sycl};
use crate::store::{Cache, Event, Key, Scope};
use crate::sys::run::Equivalent;
use crate::sys::session::Session;
use crate::sys::toolchain;

/// Returns the object of `plan` from the cache, or generates and caches it.
pub(super) fn object(
    plan: &Plan,
    purpose: &Purpose,
    context: &RegisterContext<'_>,
    session: &Session,
) -> Result<Vec<u8>> {
    let request = Request::Make {
        form: Form::Object,
        plan: plan.clone(),
    }
    .encode()?;
    let (Some(cache), Ok(program)) = (context.cache, program::find()) else {
        return context.llvm.make_encoded(&request, purpose);
    };
    let say = |what: &str| {
        if context.settings.run.verbose {
            session.shell.note(&format!("{}: {what}", purpose.step));
        }
    };
    let known = generator(&program, cache);
    let found = known
        .as_ref()
        .map(|generator| key(&request, generator, cache))
        .and_then(|key| Some((key, cache.record(key, Scope::Code)?)));
    if let Some((key, object)) = found {
        cache.count(Event::RegistrationHit);
        say(if cache.was_shared_record(key) {
            "found in the remote cache"
        } else {
            "found in the cache"
        });
        return Ok(object);
    }
    cache.count(Event::RegistrationMiss);
    say("not in the cache");
    let object = context.llvm.make_encoded(&request, purpose)?;
    let (later, copy, since) = (Arc::clone(cache), object.clone(), context.llvm.created());
    cache.later(move || {
        let generator = known.or_else(|| Tool::of(&program, &later).ok());
        // If the program was replaced in the meantime, either version may have generated the
        // object.
        if let Some(generator) =
            generator.filter(|generator| generator.verify_unchanged(since).is_ok())
        {
            let key = key(&request, &generator, &later);
            let _ = later.put_record(key, &copy, Scope::Code);
        }
    });
    Ok(object)
}

/// Returns the request for the object of `plan`, if the object is not in the cache.
pub(super) fn missing(plan: &Plan, context: &RegisterContext<'_>) -> Option<Vec<u8>> {
    let request = Request::Make {
        form: Form::Object,
        plan: plan.clone(),
    }
    .encode()
    .ok()?;
    let Some(cache) = context.cache else {
        return Some(request);
    };
    let known = program::find()
        .ok()
        .and_then(|program| generator(&program, cache));
    let found =
        known.and_then(|generator| cache.record(key(&request, &generator, cache), Scope::Code));
    found.is_none().then_some(request)
}

/// Returns the identity of the program that generates objects, if a lookup can succeed with it. A
/// program without a record has generated no object in this machine's cache, and hashing it takes a
/// while. But with a signed cache, another machine may have shared the objects of its copy.
fn generator(program: &Path, cache: &Arc<Cache>) -> Option<Tool> {
    let known = Tool::from_record(program, cache);
    known.or_else(|| {
        if cache.is_signed() {
            Tool::of(program, cache).ok()
        } else {
            None
        }
    })
}

/// Returns the key in `cache` for the object of `request` by `generator`.
fn key(request: &[u8], generator: &Tool, cache: &Cache) -> Key {
    let mut key = cache.shared_key("registration object 2");
    key.add(BUILD).add(generator.digest.bytes()).add(request);
    key.key()
}

/// Writes `object`, a registration object, to `path`. The first object of an ELF link gets the
/// note, unless the user turned it off.
pub(super) fn write_with_note(
    path: &Path,
    object: &[u8],
    first: bool,
    context: &RegisterContext<'_>,
) -> Result<()> {
    let describe = || format!("cannot write `{}`", path.display());
    let wanted = first
        && !context.settings.no_note
        && ObjectFormat::of(context.host_triple) == ObjectFormat::Elf;
    if !wanted {
        return std::fs::write(path, object).with_context(describe);
    }
    let by = LinkedBy::this(context.device_compiler);
    let noted = link_note::add(object, &by)
        .and_then(|parts| join(object, &parts, &[]))
        .with_context(|| format!("cannot add a note to `{}`", path.display()))?;
    std::fs::write(path, noted).with_context(describe)
}

/// Returns the commands of LLVM's tools that create the module `bitcode` and the object `object` of
/// `payload`, one step each, as LLVM's wrapper of release 23 and later runs them for `--save-temps`.
/// offld only prints them: pasted into a shell, they repeat the work of this process.
/// llvm-offload-wrapper supports only the entry tables of LLVM 21 and later, and the SYCL
/// registration of LLVM 22; for others there are no commands.
pub(super) fn commands(
    payload: &Payload,
    context: &RegisterContext<'_>,
    bitcode: &Path,
    object: &Path,
    session: &Session,
) -> Result<Vec<Equivalent>> {
    let settings = context.settings;
    let known = payload.generation == Generation::Llvm21
        && (payload.kind != OffloadKind::Sycl || context.sycl == sycl::Registration::Llvm22);
    if !known {
        return Ok(Vec::new());
    }
    let tool = |name| toolchain::llvm_tool(name, &settings.device);
    let mut commands = Vec::new();
    let mut inputs: Vec<PathBuf> = Vec::new();
    for image in &payload.images {
        let Some(file) = &image.file else {
            return Ok(Vec::new());
        };
        let Some(target) = &image.target else {
            inputs.push(file.clone());
            continue;
        };
        let stem = file.file_stem().unwrap_or_default().to_string_lossy();
        let packed = session
            .scratch
            .path(&format!("{stem}.{}", payload.kind.name()), "offload")?;
        commands.push((
            tool("llvm-offload-binary"),
            packing(file, target, payload.kind, &packed),
        ));
        inputs.push(packed);
    }

    let triple = context.host_triple;
    let mut args: Vec<OsString> = vec![
        format!("--triple={triple}").into(),
        format!("--kind={}", payload.kind.name()).into(),
    ];
    if settings.host.relocatable && payload.kind == OffloadKind::OpenMp {
        args.push("--relocatable".into());
    }
    args.extend(["-o".into(), bitcode.into()]);
    args.extend(inputs.into_iter().map(PathBuf::into_os_string));
    commands.push((tool("llvm-offload-wrapper"), args));

    let clang = session.runner.program(
        toolchain::device_compiler(Some(&settings.device), None).map(|choice| choice.compiler.path),
        "clang",
    )?;
    let arguments = [
        "--no-default-config",
        &format!("--target={triple}"),
        "-fPIC",
        "-c",
        "-o",
    ]
    .map(OsString::from);
    commands.push((
        clang,
        [&arguments[..], &[object.into(), bitcode.into()]].concat(),
    ));
    Ok(commands)
}

/// Returns the llvm-offload-binary arguments that put an image into its container.
fn packing(
    file: &Path,
    (triple, arch): &(String, String),
    kind: OffloadKind,
    output: &Path,
) -> Vec<OsString> {
    let mut image = OsString::from("--image=file=");
    image.push(file);
    image.push(OsStr::new(&format!(
        ",triple={triple},arch={arch},kind={}",
        kind.name()
    )));
    vec!["-o".into(), output.into(), image]
}
