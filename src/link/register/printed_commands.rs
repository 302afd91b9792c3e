//! Commands of LLVM's tools that create the same host object, one step each, as LLVM's wrapper of
//! release 23 and later runs them for `--save-temps`. offld only prints them: pasted into a shell,
//! they repeat the work of this process.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::RegisterContext;
use crate::link::payload::Payload;
use crate::model::{Generation, OffloadKind};
use crate::registration::sycl;
use crate::sys::run::Equivalent;
use crate::sys::session::Session;
use crate::sys::toolchain;

/// Returns the commands that create the module `bitcode` and the object `object` of `payload`.
/// llvm-offload-wrapper supports only the entry tables of LLVM 21 and later, and the SYCL
/// registration of LLVM 22; for others there are no commands.
pub(super) fn commands(
    payload: &Payload,
    context: &RegisterContext<'_>,
    bitcode: &Path,
    object: &Path,
    session: &Session,
) -> Result<Vec<Equivalent>> {
    let request = context.request;
    let known = payload.generation == Generation::Llvm21
        && (payload.kind != OffloadKind::Sycl || context.sycl == sycl::Registration::Llvm22);
    if !known {
        return Ok(Vec::new());
    }
    let tool = |name| toolchain::llvm_tool(name, request.device.offld_clang.as_deref());
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
    if request.host.relocatable && payload.kind == OffloadKind::OpenMp {
        args.push("--relocatable".into());
    }
    args.extend(["-o".into(), bitcode.into()]);
    args.extend(inputs.into_iter().map(PathBuf::into_os_string));
    commands.push((tool("llvm-offload-wrapper"), args));

    let clang = session.runner.program(
        toolchain::device_compiler(request.device.offld_clang.as_deref(), None)
            .map(|choice| choice.compiler.path),
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
