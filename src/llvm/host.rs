//! The host: its target machine, and what of its objects matters to registration code.

use anyhow::{Context as _, Result, anyhow, bail};
use inkwell::OptimizationLevel;
use inkwell::targets::{
    CodeModel, InitializationConfig, RelocMode, Target, TargetData, TargetMachine, TargetMachineOptions, TargetTriple,
};
use std::sync::Once;

/// A host that code can be made for.
pub(super) struct Host {
    pub(super) machine: TargetMachine,
    pub(super) data: TargetData,
    /// Its objects are COFF; otherwise they are ELF.
    pub(super) coff: bool,
    /// The ABI that must be told apart from its siblings of the same triple, if there are any.
    pub(super) abi: Option<&'static str>,
    /// The features that it needs.
    pub(super) features: &'static str,
}

impl Host {
    /// The host `triple`: a generic processor, position independent code.
    pub(super) fn new(triple: &str) -> Result<Self> {
        initialize(triple);
        // The text of the error has the triple, so it is looked up as the user wrote it, then normalised (`i686-w64-mingw32`).
        let given = TargetTriple::create(triple);
        let target = Target::from_triple(&given).map_err(|error| anyhow!("{}", error.to_string().trim_end()))?;
        let (features, abi) = abi(triple);
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
            .with_context(|| format!("no code can be made for the host `{triple}`"))?;
        let data = machine.get_target_data();
        let layout = data.get_data_layout().as_str().to_string_lossy().into_owned();
        // The layout says how names are mangled, and that says which kind of object it is.
        let coff = match layout.split('-').find_map(|part| part.strip_prefix("m:")) {
            Some("e") => false,
            Some("w" | "x") => true,
            // LLVM aborts on the sections it would need (fault F25).
            Some("o") => bail!("the host `{triple}` has Mach-O objects, in which no offload entries can be embedded"),
            _ => bail!("the objects of the host `{triple}` are neither ELF nor COFF"),
        };
        Ok(Host { machine, data, coff, abi, features })
    }
}

/// An error unless registration code can be made for the host `triple`.
pub fn check_host(triple: &str) -> Result<()> {
    Host::new(triple).map(drop)
}

/// The triple of the machine this runs on, as LLVM names it.
pub fn default_triple() -> String {
    TargetMachine::get_default_triple().as_str().to_string_lossy().into_owned()
}

/// Features and ABI where the triple leaves them open and linkers check them: those of the Linux distributions.
fn abi(triple: &str) -> (&'static str, Option<&'static str>) {
    match triple.split('-').next().unwrap_or_default() {
        "riscv64" => ("+m,+a,+f,+d,+c", Some("lp64d")),
        "riscv32" => ("+m,+a,+f,+d,+c", Some("ilp32d")),
        "loongarch64" => ("+f,+d", Some("lp64d")),
        "powerpc64le" | "ppc64le" => ("", Some("elfv2")),
        _ => ("", None),
    }
}

/// Registers the target of `triple` with LLVM: one of several, and each takes its time. All of them where the triple names none, so that
/// LLVM says which there are.
fn initialize(triple: &str) {
    static ONCE: [Once; 6] = [const { Once::new() }; 6];
    type Registered = (&'static [&'static str], fn(&InitializationConfig));
    const TARGETS: [Registered; 6] = [
        (&["x86_64", "amd64", "i386", "i486", "i586", "i686"], Target::initialize_x86),
        (&["aarch64", "arm64"], Target::initialize_aarch64),
        (&["powerpc", "ppc"], Target::initialize_power_pc),
        (&["riscv"], Target::initialize_riscv),
        (&["s390x", "systemz"], Target::initialize_system_z),
        (&["loongarch"], Target::initialize_loongarch),
    ];
    let config = InitializationConfig { asm_parser: false, disassembler: false, ..InitializationConfig::default() };
    let named = |prefixes: &[&str]| prefixes.iter().any(|prefix| triple.starts_with(prefix));
    let any = TARGETS.iter().any(|(prefixes, _)| named(prefixes));
    for ((prefixes, register), once) in TARGETS.iter().zip(&ONCE) {
        if !any || named(prefixes) {
            once.call_once(|| register(&config));
        }
    }
}
