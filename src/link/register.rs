//! Generates host objects: payloads become plans, and plans become objects in the temporary
//! directory. Images do not pass through LLVM but are streamed into objects of their own. If the
//! user is shown the module, it contains the images instead.

mod external;
mod plan;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use rayon::prelude::*;

use crate::BUILD;
use crate::args::joined;
use crate::args::settings::LinkSettings;
use crate::link::device::Tool;
use crate::link::payload::{Group, Payload};
use crate::llvm::{Llvm, Purpose, find_program};
use crate::toolchain;
pub(crate) use external::{ExternalFiles, check_external, external_files, warn_of_no_files};
use offld_system::io::rope::Rope;
use offld_system::run::Equivalent;
use offld_system::session::Session;
use offld_system::store::{Cache, Event, Key, Scope};
use offld_system::threads;
use offload_files::edit::backpatch::{Filling, REGISTERED, placeholder};
use offload_files::image_object::{self, HostObject, StreamedImage};
use offload_formats::compose::join;
use offload_formats::elf::notes::{self, LinkedBy};
use offload_formats::model::{Generation, ObjectFormat, OffloadKind};
use offload_formats::offload_sections::entry_section;
use offload_formats::registration::protocol::{Form, Request};
use offload_formats::registration::{self, ImageSection, Plan, sycl};

/// Size in bytes from which an image gets an object of its own.
const LARGE: u64 = 8 << 20;

/// The facts about the link that this stage needs.
pub(crate) struct RegisterContext<'a> {
    pub settings: &'a LinkSettings,
    /// The output as the user named it.
    pub output: &'a Path,
    pub host_triple: &'a str,
    /// The data that the registration passes to SYCL's runtime.
    pub sycl: sycl::Registration,
    /// The objects have placeholders instead of the images, which are written into the program
    /// after its link.
    pub late: bool,
    /// The major version of the device compiler, if it is known.
    pub device_compiler: Option<u32>,
    /// The control-flow protection of the host objects (`Plan::protection`).
    pub protection: u32,
    /// Generates registration code.
    pub llvm: &'a Llvm<'a>,
    pub cache: Option<&'a Arc<Cache>>,
}

/// Starts generating the registration code of `groups` while their images are linked, if the code
/// is not in the cache. If the code depends on the images, only starts LLVM.
pub(crate) fn begin(groups: &[Group], context: &RegisterContext<'_>) {
    let plans: Option<Vec<Plan>> = groups
        .iter()
        .map(|group| plan::before(group, context))
        .collect();
    match plans {
        Some(plans) => {
            let missing: Vec<Vec<u8>> = plans
                .iter()
                .filter_map(|plan| missing_request(plan, context))
                .collect();
            if !missing.is_empty() {
                context.llvm.start_early(context.host_triple, missing);
            }
        }
        None => context.llvm.start_early(context.host_triple, Vec::new()),
    }
}

/// Returns the objects to add to the host link, in order.
pub(crate) fn make(
    payloads: &[Payload],
    files: &ExternalFiles,
    context: &RegisterContext<'_>,
    session: &Session,
) -> Result<Vec<PathBuf>> {
    let mut objects = Vec::new();
    for (index, payload) in payloads.iter().enumerate() {
        session.signals.check()?;
        let table = files.tables.get(index).map(Vec::as_slice);
        let made = host_objects(payload, table, index == 0, context, session);
        objects.append(&mut made?);
        if context.late {
            continue;
        }
        // The objects contain the images now, so the images' files can be removed, unless a later
        // payload uses them.
        let later = |file: &Path| {
            payloads[index + 1..]
                .iter()
                .flat_map(image_files)
                .any(|other| other == file)
        };
        image_files(payload)
            .filter(|file| !later(file))
            .for_each(|file| session.scratch.discard(file));
    }
    Ok(objects)
}

/// Returns the images of `payloads`, each with its placeholder in the objects that [`make`] writes
/// for a late link.
pub(crate) fn fillings(
    payloads: &[Payload],
    context: &RegisterContext<'_>,
) -> Result<Vec<Filling>> {
    let mut fillings = Vec::new();
    for payload in payloads {
        let (plan, images) = plan::of(payload, context)?;
        let align = registration::plan_section(&plan).align.into();
        for image in images {
            let start = image.symbols.first().context("an image without symbols")?;
            let registered = start.at..start.at.saturating_add(start.size);
            fillings.push(Filling {
                placeholder: placeholder(&start.name),
                contents: image.contents,
                registered,
                align,
            });
        }
    }
    Ok(fillings)
}

/// Returns the placeholder of `image`, which is in the program until the image replaces it.
fn placeholder_image(image: StreamedImage) -> StreamedImage {
    let name = image.symbols.first().map_or("", |symbol| &symbol.name);
    let contents = Rope::from(placeholder(name).to_vec());
    let mut symbols = image.symbols;
    let size = REGISTERED.end - REGISTERED.start;
    let (whole, end) = ((REGISTERED.start, size), (REGISTERED.end, 0));
    // Further symbols are other names of the first one.
    let places = [whole, end].into_iter().chain(std::iter::repeat(whole));
    for (symbol, (at, size)) in symbols.iter_mut().zip(places) {
        (symbol.at, symbol.size) = (at, size);
    }
    StreamedImage { symbols, contents }
}

/// Returns the sections of the entries that are registered, each once.
pub(crate) fn tables(payloads: &[Payload]) -> Vec<&'static str> {
    let mut tables: Vec<&str> = payloads
        .iter()
        .map(|payload| entry_section(payload.generation, payload.kind))
        .collect();
    tables.sort_unstable();
    tables.dedup();
    tables
}

/// Returns the files with the contents of a payload's images.
fn image_files(payload: &Payload) -> impl Iterator<Item = &Path> {
    payload
        .images
        .iter()
        .flat_map(|image| image.contents.files())
}

/// `table`: lists the images, if they are in files.
fn host_objects(
    payload: &Payload,
    table: Option<&[u8]>,
    first: bool,
    context: &RegisterContext<'_>,
    session: &Session,
) -> Result<Vec<PathBuf>> {
    let base = context
        .output
        .file_name()
        .unwrap_or(context.output.as_os_str())
        .to_string_lossy()
        .into_owned();
    let stem = format!("{base}.{}.image", payload.kind.name());
    let (plan, mut streamed) = plan::of(payload, context)?;
    let mut section = registration::plan_section(&plan);
    if let (Some(symbol), Some(table)) = (plan.images.table(), table) {
        let mut contents = Rope::default();
        contents.push_bytes(table.to_vec());
        streamed = vec![StreamedImage::whole(symbol, contents)];
        section = external::SECTION;
    } else if context.late {
        streamed = streamed.into_iter().map(placeholder_image).collect();
    }
    let purpose = purpose(payload);
    if context.settings.run.print_wrapped_module {
        let text = context.llvm.make(Form::Text, &plan, &purpose)?;
        session
            .shell
            .line(String::from_utf8_lossy(&text).trim_end());
    }
    let wrapper = session.scratch.path(&format!("{stem}.wrapper"), "o")?;
    if context.settings.run.save_temps {
        let bitcode = session.scratch.path(&format!("{stem}.wrapper"), "bc")?;
        session
            .runner
            .show_in_process(&|| llvm_commands(payload, context, &bitcode, &wrapper, session))?;
        session.runner.make(&bitcode, &|path| {
            write(path, &context.llvm.make(Form::Bitcode, &plan, &purpose)?)
        })?;
    }
    session.runner.make(&wrapper, &|path| {
        write_with_note(
            path,
            &registration_object(&plan, &purpose, context, session)?,
            first,
            context,
        )
    })?;
    let mut objects = vec![wrapper];
    if !streamed.is_empty() {
        objects.append(&mut stream_images(
            &plan, section, &streamed, &stem, session,
        )?);
    }
    Ok(objects)
}

/// Returns the purpose of the registration code of `payload`, for error reports.
fn purpose(payload: &Payload) -> Purpose {
    let inputs = image_files(payload).map(|file| {
        file.file_name()
            .unwrap_or(file.as_os_str())
            .to_string_lossy()
            .into_owned()
    });
    Purpose {
        step: format!("registration code for {}", payload.kind.name()),
        inputs: inputs.collect(),
    }
}

/// Writes objects for `images`, in their order, in parallel. A large image gets an object of its
/// own, because the kernel lets only one thread write to a file at a time.
fn stream_images(
    plan: &Plan,
    section: ImageSection,
    images: &[StreamedImage],
    stem: &str,
    session: &Session,
) -> Result<Vec<PathBuf>> {
    let is_large = |image: &StreamedImage| image.contents.size() >= LARGE;
    let groups: Vec<&[StreamedImage]> = images
        .chunk_by(|one, next| !is_large(one) && !is_large(next))
        .collect();
    let paths = groups
        .iter()
        .map(|_| session.scratch.path(stem, "o"))
        .collect::<Result<Vec<_>>>()?;
    let in_all = images
        .iter()
        .map(|image| image.contents.size())
        .fold(0, u64::saturating_add);
    let host = HostObject {
        triple: &plan.host_triple,
        protection: plan.protection,
    };
    let write = |images: &[StreamedImage], path: &Path| {
        session.signals.check()?;
        let mut out =
            File::create(path).with_context(|| format!("cannot write `{}`", path.display()))?;
        image_object::write(&mut out, host, section, images, in_all)
            .with_context(|| format!("cannot write `{}`", path.display()))
    };
    let written: Vec<Result<()>> = threads::in_parallel(|| {
        groups
            .par_iter()
            .zip(&paths)
            .map(|(images, path)| write(images, path))
            .collect()
    });
    written.into_iter().collect::<Result<()>>()?;
    Ok(paths)
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    std::fs::write(path, bytes).with_context(|| format!("cannot write `{}`", path.display()))
}

// Registration objects: from the cache, or generated. The key of an object contains its plan, with
// the images that are part of it, and the program that generates it. The object is host code that
// runs before `main`, so a shared cache is used for it only if its entries are signed
// (`OFFLD_CACHE_KEY`).
//
// A note in the first object names the linker of the device code. Cached objects have no note, so
// that links with other compilers share them.

/// Returns the object of `plan` from the cache, or generates and caches it.
fn registration_object(
    plan: &Plan,
    purpose: &Purpose,
    context: &RegisterContext<'_>,
    session: &Session,
) -> Result<Vec<u8>> {
    let request = object_request(plan)?;
    let (Some(cache), Ok(program)) = (context.cache, find_program()) else {
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
        .map(|generator| object_key(&request, generator, cache))
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
            let key = object_key(&request, &generator, &later);
            let _ = later.put_record(key, &copy, Scope::Code);
        }
    });
    Ok(object)
}

/// Returns the request for the object of `plan`, if the object is not in the cache.
fn missing_request(plan: &Plan, context: &RegisterContext<'_>) -> Option<Vec<u8>> {
    let request = object_request(plan).ok()?;
    let Some(cache) = context.cache else {
        return Some(request);
    };
    let known = find_program()
        .ok()
        .and_then(|program| generator(&program, cache));
    let found = known
        .and_then(|generator| cache.record(object_key(&request, &generator, cache), Scope::Code));
    found.is_none().then_some(request)
}

/// Returns the request for the object of `plan`.
fn object_request(plan: &Plan) -> Result<Vec<u8>> {
    let plan = plan.clone();
    let form = Form::Object;
    Request::Make { form, plan }.encode()
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
fn object_key(request: &[u8], generator: &Tool, cache: &Cache) -> Key {
    let mut key = cache.shared_key("registration object 2");
    key.add(BUILD).add(generator.digest.bytes()).add(request);
    key.key()
}

/// Writes `object`, a registration object, to `path`. The first object of an ELF link gets the
/// note, unless the user turned it off.
fn write_with_note(
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
    let noted = notes::add_link_notes(object, &by)
        .and_then(|parts| join(object, &parts, &[]))
        .with_context(|| format!("cannot add a note to `{}`", path.display()))?;
    std::fs::write(path, noted).with_context(describe)
}

/// Returns the commands of LLVM's tools that create the module `bitcode` and the object `object` of
/// `payload`, one step each, as LLVM's wrapper of release 23 and later runs them for
/// `--save-temps`. offld only prints them: pasted into a shell, they repeat the work of this
/// process. llvm-offload-wrapper supports only the entry tables of LLVM 21 and later, and the SYCL
/// registration of LLVM 22; for others there are no commands.
fn llvm_commands(
    payload: &Payload,
    context: &RegisterContext<'_>,
    bitcode: &Path,
    object: &Path,
    session: &Session,
) -> Result<Vec<Equivalent>> {
    let settings = context.settings;
    let known = payload.modules.is_empty()
        && settings.external_images.is_none()
        && payload.generation == Generation::Llvm21
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
            packing_arguments(file, target, payload.kind, &packed),
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
fn packing_arguments(
    file: &Path,
    (triple, arch): &(String, String),
    kind: OffloadKind,
    output: &Path,
) -> Vec<OsString> {
    let mut image = joined("--image=file=", file);
    image.push(format!(",triple={triple},arch={arch},kind={}", kind.name()));
    vec!["-o".into(), output.into(), image]
}
