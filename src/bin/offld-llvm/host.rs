//! Host of a module: its target machine, and the properties of its objects that matter to
//! registration code.

use anyhow::{Context as _, Result, anyhow, bail};
use inkwell::OptimizationLevel;
use inkwell::targets::{
    CodeModel, InitializationConfig, RelocMode, Target, TargetData, TargetMachine,
    TargetMachineOptions, TargetTriple,
};
use offld::programs::registration::host::{self as registration_host, FAMILIES, Family};
use std::sync::Once;

/// A host that LLVM can generate code for.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) machine: TargetMachine,
    pub(super) data: TargetData,
    /// Whether objects are COFF; otherwise they are ELF.
    pub(super) coff: bool,
    /// The name of the ABI, if the triple has several.
    pub(super) abi: Option<&'static str>,
    /// The CPU features that the ABI requires.
    pub(super) features: &'static str,
}

impl Host {
    /// Creates the host `triple` with a generic CPU and position-independent code.
    pub(super) fn new(triple: &str) -> Result<Self> {
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
pub(crate) fn default_triple() -> String {
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
