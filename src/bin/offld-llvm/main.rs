//! Program that contains LLVM. `offld` starts it if registration code is needed and not in the
//! cache, sends requests to its stdin, and reads the answers from its stdout
//! (`offload_formats::registration::protocol`). It reads and writes no files, and exits at the end
//! of stdin.

#![cfg_attr(
    test,
    expect(
        clippy::disallowed_types,
        reason = "unit tests run the C compiler and its output"
    )
)]

mod emit;
mod emit_fatbin;
mod emit_modules;
mod emit_openmp;
mod emit_sycl;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::ffi::{CStr, c_void};
use std::io::{self, Read, Write};
use std::process::ExitCode;
use std::sync::Once;

use anyhow::{Context as _, Result, anyhow, bail};
use inkwell::OptimizationLevel;
use inkwell::context::Context;
use inkwell::llvm_sys::LLVMDiagnosticSeverity::LLVMDSError;
use inkwell::llvm_sys::core::{
    LLVMContextSetDiagnosticHandler, LLVMDisposeMessage, LLVMGetDiagInfoDescription,
    LLVMGetDiagInfoSeverity,
};
use inkwell::llvm_sys::prelude::LLVMDiagnosticInfoRef;
use inkwell::targets::{
    CodeModel, InitializationConfig, RelocMode, Target, TargetData, TargetMachine,
    TargetMachineOptions, TargetTriple,
};
use offld::BUILD;
use offld_system::service::LARGEST_FRAME;
use offload_formats::registration::host::{FAMILIES, Family};
use offload_formats::registration::protocol::{Answer, Form, Request, SERVE};
use offload_formats::registration::{Images, Modules, Plan, host as registration_host};
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
    // If the user's shell has set a lower limit, this call fails and the lower limit remains. The
    // program works without the limit, too.
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
        Request::DefaultTriple => Ok(default_triple().into_bytes()),
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
        generation: offload_formats::model::Generation::Llvm21,
        images: Images::OpenMp(Vec::new()),
        relocatable: false,
        protection: 0,
        modules: Modules::default(),
    };
    let _ = emit::compile(&plan);
}

// LLVM context that collects diagnostics. By default, LLVM prints them and ends the process at an
// error.

/// An LLVM context with the errors that LLVM has reported to it.
struct QuietContext {
    // Declared before the errors, because it must be dropped first: its handler points to them.
    context: Context,
    errors: Box<RefCell<Vec<String>>>,
}

impl QuietContext {
    fn new() -> Self {
        let quiet = QuietContext {
            context: Context::create(),
            errors: Box::default(),
        };
        let errors = (&raw const *quiet.errors).cast_mut().cast::<c_void>();
        #[expect(
            unsafe_code,
            reason = "LLVM's C API; the box outlives the context, and both stay on this thread"
        )]
        unsafe {
            LLVMContextSetDiagnosticHandler(quiet.context.raw(), Some(record_error), errors);
        }
        quiet
    }

    fn llvm(&self) -> &Context {
        &self.context
    }

    /// Returns the first reported error, if there is one.
    fn error(&self) -> Option<String> {
        self.errors.borrow().first().cloned()
    }
}

extern "C" fn record_error(info: LLVMDiagnosticInfoRef, errors: *mut c_void) {
    #[expect(
        unsafe_code,
        reason = "LLVM passes the pointer from `new`; the description is a C string that this function frees"
    )]
    unsafe {
        if LLVMGetDiagInfoSeverity(info) != LLVMDSError {
            return;
        }
        let text = LLVMGetDiagInfoDescription(info);
        let errors = &*errors.cast_const().cast::<RefCell<Vec<String>>>();
        // Nothing else borrows the list while LLVM runs; `try_borrow_mut` because a panic must not
        // unwind into LLVM.
        if let Ok(mut errors) = errors.try_borrow_mut() {
            errors.push(CStr::from_ptr(text).to_string_lossy().into_owned());
        }
        LLVMDisposeMessage(text);
    }
}

// Host of a module: its target machine, and the properties of its objects that matter to
// registration code.

/// A host that LLVM can generate code for.
#[derive(Debug)]
struct Host {
    machine: TargetMachine,
    data: TargetData,
    /// Whether objects are COFF; otherwise they are ELF.
    coff: bool,
    /// The name of the ABI, if the triple has several.
    abi: Option<&'static str>,
    /// The CPU features that the ABI requires.
    features: &'static str,
}

impl Host {
    /// Creates the host `triple` with a generic CPU and position-independent code.
    fn new(triple: &str) -> Result<Self> {
        registration_host::check(triple)?;
        registration_host::family(triple)
            .into_iter()
            .for_each(initialize);
        // The lookup uses the user's spelling, which LLVM's error repeats. The target machine uses
        // the normalised triple (`i686-w64-mingw32`).
        let given = TargetTriple::create(triple);
        let target = Target::from_triple(&given)
            .map_err(|error| anyhow!("{}", error.to_string().trim_end()))?;
        let (features, abi) = registration_host::features_and_abi(triple);
        let mut options = TargetMachineOptions::new()
            .set_cpu("generic")
            .set_features(features)
            .set_level(OptimizationLevel::Default)
            .set_reloc_mode(RelocMode::PIC)
            .set_code_model(CodeModel::Default);
        if let Some(abi) = abi {
            options = options.set_abi(abi);
        }
        let machine = target
            .create_target_machine_from_options(&TargetMachine::normalize_triple(&given), options)
            .with_context(|| format!("cannot generate code for the host `{triple}`"))?;
        let data = machine.get_target_data();
        let layout = data
            .get_data_layout()
            .as_str()
            .to_string_lossy()
            .into_owned();
        // The name mangling in the data layout determines the object format.
        let coff = match layout.split('-').find_map(|part| part.strip_prefix("m:")) {
            Some("e") => false,
            Some("w" | "x") => true,
            // LLVM aborts on offld's section names in Mach-O (docs/spec/faults.md F25).
            Some("o") => bail!("Mach-O objects of the host `{triple}` cannot hold offload entries"),
            _ => bail!("objects of the host `{triple}` are neither ELF nor COFF"),
        };
        Ok(Host {
            machine,
            data,
            coff,
            abi,
            features,
        })
    }
}

/// Returns LLVM's triple for the current machine.
fn default_triple() -> String {
    TargetMachine::get_default_triple()
        .as_str()
        .to_string_lossy()
        .into_owned()
}

/// Registers LLVM's back end for `family`, once. Registering all of them would take longer.
fn initialize(family: Family) {
    static ONCE: [Once; FAMILIES.len()] = [const { Once::new() }; FAMILIES.len()];
    let register = match family {
        Family::X86 => Target::initialize_x86,
        Family::AArch64 => Target::initialize_aarch64,
        Family::PowerPc => Target::initialize_power_pc,
        Family::RiscV => Target::initialize_riscv,
        Family::SystemZ => Target::initialize_system_z,
        Family::LoongArch => Target::initialize_loongarch,
    };
    let config = InitializationConfig {
        asm_parser: false,
        disassembler: false,
        ..InitializationConfig::default()
    };
    let once = FAMILIES
        .iter()
        .zip(&ONCE)
        .find(|((of, _), _)| *of == family)
        .map(|(_, once)| once);
    once.into_iter()
        .for_each(|once| once.call_once(|| register(&config)));
}
