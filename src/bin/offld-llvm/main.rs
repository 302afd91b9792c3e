//! Program that contains LLVM. `offld` starts it if registration code is needed and not in the
//! cache, sends requests to its stdin, and reads the answers from its stdout
//! (`offld::llvm::protocol`). It reads and writes no files, and exits at the end of stdin.

#![cfg_attr(
    test,
    expect(
        clippy::disallowed_types,
        reason = "unit tests run the C compiler and its output"
    )
)]

mod context;
mod emit;
mod emit_fatbin;
mod emit_openmp;
mod emit_sycl;
mod host;
#[cfg(test)]
mod tests;

use std::io::{self, Read, Write};
use std::process::ExitCode;

use offld::programs::LARGEST_FRAME;
use offld::programs::protocol::{Answer, BUILD, Form, Request, SERVE};
use offld::programs::registration::{Images, Plan};
use rustix::process::{Resource, Rlimit, setrlimit};

/// Limit of the address space in bytes, so that a defect in LLVM cannot use up the machine's
/// memory.
const ADDRESS_SPACE: u64 = 4 << 30;

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    if args.next().is_none_or(|arg| arg != SERVE) {
        eprintln!("{BUILD}\noffld runs this program when it needs LLVM. Do not run it directly.");
        return ExitCode::FAILURE;
    }
    // A lower limit of the user's shell remains, and setting this one then fails. Everything except
    // the limit works without it.
    let _ = setrlimit(
        Resource::As,
        Rlimit {
            current: Some(ADDRESS_SPACE),
            maximum: Some(ADDRESS_SPACE),
        },
    );
    let _ = setrlimit(
        Resource::Core,
        Rlimit {
            current: Some(0),
            maximum: Some(0),
        },
    );
    if let Some(triple) = args.next() {
        warm_up(&triple.to_string_lossy());
    }
    match serve(&mut io::stdin().lock(), &mut io::stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Answers requests until stdin ends.
fn serve(requests: &mut impl Read, answers: &mut impl Write) -> io::Result<()> {
    while let Some(request) = frame(requests)? {
        let answer = match Request::decode(&request) {
            Ok(Request::Hello) => BUILD.as_bytes().to_vec(),
            Ok(request) => answer(&request).map_or_else(
                |error| Answer::Refused(&format!("{error:#}")).encode(),
                |bytes| Answer::Done(&bytes).encode(),
            ),
            Err(error) => Answer::Refused(&format!("{error:#}")).encode(),
        };
        let length = u32::try_from(answer.len()).map_err(io::Error::other)?;
        answers.write_all(&length.to_le_bytes())?;
        answers.write_all(&answer)?;
        answers.flush()?;
    }
    Ok(())
}

fn answer(request: &Request) -> anyhow::Result<Vec<u8>> {
    match request {
        Request::Hello => Ok(BUILD.as_bytes().to_vec()),
        Request::DefaultTriple => Ok(host::default_triple().into_bytes()),
        Request::Make {
            form: Form::Object,
            plan,
        } => emit::compile(plan),
        Request::Make {
            form: Form::Bitcode,
            plan,
        } => emit::compile_bitcode(plan),
        Request::Make {
            form: Form::Assembly,
            plan,
        } => emit::compile_assembly(plan),
        Request::Make {
            form: Form::Text,
            plan,
        } => emit::print_module(plan).map(String::into_bytes),
    }
}

/// Reads the next frame; none at the end of stdin.
fn frame(from: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
    let mut length = [0; 4];
    match from.read_exact(&mut length) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let length = usize::try_from(u32::from_le_bytes(length)).map_err(io::Error::other)?;
    if length > LARGEST_FRAME {
        return Err(io::Error::other(format!(
            "a request of {length} bytes exceeds the limit of 64 MiB"
        )));
    }
    let mut bytes = vec![0; length];
    from.read_exact(&mut bytes)?;
    Ok(Some(bytes))
}

/// Compiles a module without images for the host `triple`. Compiling the first module loads LLVM's
/// code and initialises its tables, which takes longer than compiling registration code. Errors are
/// ignored, because a request for that host reports them.
fn warm_up(triple: &str) {
    let plan = Plan {
        host_triple: triple.to_owned(),
        generation: offld::model::Generation::Llvm21,
        images: Images::OpenMp(Vec::new()),
        relocatable: false,
        protection: 0,
    };
    let _ = emit::compile(&plan);
}
