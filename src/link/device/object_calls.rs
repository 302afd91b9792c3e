//! Warns about AMD GPU kernels whose resource counts may be too low.
//!
//! This happens if code is generated separately for each object. ld.lld up to LLVM 23 links such
//! code without a warning. offld warns once per link.

use std::collections::HashMap;

use super::DeviceContext;
use super::clang::compiles_each;
use crate::formats::kernels::object_calls::{self, Call, ObjectCalls};
use crate::formats::{bitcode, magic};
use crate::link::scan::DeviceImage;
use crate::link::select::DeviceJob;
use crate::model::printable;
use crate::sys::shell::Shell;

/// Last LLVM release whose ld.lld ignores resources of functions in other objects.
const LAST_AFFECTED_RELEASE: u32 = 23;

/// Prints the warning if the code of one of the `jobs` has calls between objects.
pub(super) fn warn(jobs: &[DeviceJob<'_>], context: &DeviceContext<'_>, shell: &Shell) {
    if context
        .compiler
        .major
        .is_some_and(|major| major > LAST_AFFECTED_RELEASE)
    {
        return;
    }
    let first = jobs
        .iter()
        .filter(|job| job.target.is_amdgcn())
        .find_map(|job| {
            let calls = first_call(&job.inputs, compiles_each(&job.target, context))?;
            Some((job, calls))
        });
    let Some((job, (from, call, to))) = first else {
        return;
    };
    let caller = match call {
        Call { caller, .. } if caller.is_empty() => "the code".to_owned(),
        Call {
            caller,
            by_kernel: true,
            ..
        } => format!("kernel `{}`", printable(&caller)),
        Call { caller, .. } => format!("function `{}`", printable(&caller)),
    };
    shell.warn(&format!(
        "kernels for {} may get too few registers and too little scratch memory: {caller} in {} calls `{}` in {}, and the linker \
         does not count the resources of functions in other objects. Compile the device code with -foffload-lto",
        job.target,
        from.origin,
        printable(&call.callee),
        to.origin
    ));
}

type ResolvedCall<'a> = (&'a DeviceImage<'a>, Call, &'a DeviceImage<'a>);

/// Finds the first call from an object to another input that defines the function. Calls by kernels
/// come first.
///
/// `each`: bitcode inputs are compiled separately, too.
fn first_call<'a>(inputs: &[&'a DeviceImage<'a>], each: bool) -> Option<ResolvedCall<'a>> {
    let is_object = |input: &DeviceImage<'_>| {
        if magic::is_bitcode(&input.bytes) {
            each
        } else {
            true
        }
    };
    let objects: Vec<(&DeviceImage<'_>, ObjectCalls)> = inputs
        .iter()
        .filter(|input| is_object(input))
        .filter_map(|input| {
            Some((
                *input,
                object_calls::of_object(&input.bytes).or_else(|| of_bitcode(input))?,
            ))
        })
        .collect();
    if objects.iter().all(|(_, object)| object.calls.is_empty())
        || !objects.iter().any(|(_, object)| object.has_kernel)
    {
        return None;
    }
    let mut definers: HashMap<&str, &DeviceImage<'_>> = HashMap::new();
    let linked: Vec<(&DeviceImage<'_>, ObjectCalls)> = inputs
        .iter()
        .filter(|input| !is_object(input))
        .filter_map(|input| Some((*input, of_bitcode(input)?)))
        .collect();
    for (input, object) in objects.iter().chain(&linked) {
        for function in &object.functions {
            definers.entry(function).or_insert(*input);
        }
    }
    let calls = objects
        .iter()
        .flat_map(|(from, object)| object.calls.iter().map(move |call| (*from, call)));
    let resolved = calls.filter_map(|(from, call)| {
        Some((from, call.clone(), *definers.get(call.callee.as_str())?))
    });
    resolved.min_by_key(|(_, call, _)| !call.by_kernel)
}

/// Returns the calls of a bitcode module. Its kernels cannot be distinguished from other functions.
fn of_bitcode(input: &DeviceImage<'_>) -> Option<ObjectCalls> {
    let symbols = bitcode::symbols(&input.bytes)
        .ok()
        .filter(|_| magic::is_bitcode(&input.bytes))?;
    let name = |symbol: bitcode::Symbol<'_>| String::from_utf8_lossy(&symbol.name).into_owned();
    let functions = symbols
        .defined
        .into_iter()
        .filter(|symbol| symbol.function)
        .map(name)
        .collect();
    let called = symbols
        .undefined
        .into_iter()
        .filter(|symbol| symbol.function)
        .map(name);
    let calls = called
        .map(|callee| Call {
            caller: String::new(),
            by_kernel: false,
            callee,
        })
        .collect();
    Some(ObjectCalls {
        has_kernel: true,
        functions,
        calls,
    })
}
