//! AMD's processors and families. Each row has the processor's number in image headers, its family,
//! the features that its target ID may specify, and its product names.
//!
//! Sources: LLVM 22's "User Guide for AMDGPU Backend" (processors, generic processors, ELF header)
//! for rows marked LLVM 22. The other rows name the LLVM change, and their numbers are in
//! `llvm/include/llvm/BinaryFormat/ELF.h`.

pub(super) struct Processor {
    /// `EF_AMDGPU_MACH_AMDGCN_*` of images.
    pub mach: u32,
    /// The name: `gfx90a`.
    pub name: &'static str,
    /// The major version of the family, as in [`FAMILIES`]. Empty if there is none.
    pub family: &'static str,
    /// The features that target IDs may specify, in alphabetical order.
    pub features: &'static [&'static str],
    /// Product names, which compilers accept too.
    pub other_names: &'static [&'static str],
}

const fn amd(
    mach: u32,
    name: &'static str,
    family: &'static str,
    features: &'static [&'static str],
    other_names: &'static [&'static str],
) -> Processor {
    Processor {
        mach,
        name,
        family,
        features,
        other_names,
    }
}

const NONE: &[&str] = &[];
const XNACK: &[&str] = &["xnack"];
const BOTH: &[&str] = &["sramecc", "xnack"];

#[rustfmt::skip]
pub(super) const PROCESSORS: [Processor; 62] = [
    amd(0x20, "gfx600", "6", NONE, &["tahiti"]), // LLVM 22
    amd(0x21, "gfx601", "6", NONE, &["pitcairn", "verde"]), // LLVM 22
    amd(0x22, "gfx700", "7", NONE, &["kaveri"]), // LLVM 22
    amd(0x23, "gfx701", "7", NONE, &["hawaii"]), // LLVM 22
    amd(0x24, "gfx702", "7", NONE, &[]), // LLVM 22
    amd(0x25, "gfx703", "7", NONE, &["kabini", "mullins"]), // LLVM 22
    amd(0x26, "gfx704", "7", NONE, &["bonaire"]), // LLVM 22
    amd(0x28, "gfx801", "8", XNACK, &["carrizo"]), // LLVM 22
    amd(0x29, "gfx802", "8", NONE, &["iceland", "tonga"]), // LLVM 22
    amd(0x2a, "gfx803", "8", NONE, &["fiji", "polaris10", "polaris11"]), // LLVM 22
    amd(0x2b, "gfx810", "", XNACK, &["stoney"]), // LLVM 22
    amd(0x2c, "gfx900", "9", XNACK, &[]), // LLVM 22
    amd(0x2d, "gfx902", "9", XNACK, &[]), // LLVM 22
    amd(0x2e, "gfx904", "9", XNACK, &[]), // LLVM 22
    amd(0x2f, "gfx906", "9", BOTH, &[]), // LLVM 22
    amd(0x30, "gfx908", "", BOTH, &[]), // LLVM 22
    amd(0x31, "gfx909", "9", XNACK, &[]), // LLVM 22
    amd(0x32, "gfx90c", "9", XNACK, &[]), // LLVM 22
    amd(0x33, "gfx1010", "10.1", XNACK, &[]), // LLVM 22
    amd(0x34, "gfx1011", "10.1", XNACK, &[]), // LLVM 22
    amd(0x35, "gfx1012", "10.1", XNACK, &[]), // LLVM 22
    amd(0x36, "gfx1030", "10.3", NONE, &[]), // LLVM 22
    amd(0x37, "gfx1031", "10.3", NONE, &[]), // LLVM 22
    amd(0x38, "gfx1032", "10.3", NONE, &[]), // LLVM 22
    amd(0x39, "gfx1033", "10.3", NONE, &[]), // LLVM 22
    amd(0x3a, "gfx602", "6", NONE, &["hainan", "oland"]), // LLVM 22
    amd(0x3b, "gfx705", "7", NONE, &[]), // LLVM 22
    amd(0x3c, "gfx805", "8", NONE, &["tongapro"]), // LLVM 22
    amd(0x3d, "gfx1035", "10.3", NONE, &[]), // LLVM 22
    amd(0x3e, "gfx1034", "10.3", NONE, &[]), // LLVM 22
    amd(0x3f, "gfx90a", "", BOTH, &[]), // LLVM 22
    amd(0x41, "gfx1100", "11", NONE, &[]), // LLVM 22
    amd(0x42, "gfx1013", "10.1", XNACK, &[]), // LLVM 22
    amd(0x43, "gfx1150", "11", NONE, &[]), // LLVM 22
    amd(0x44, "gfx1103", "11", NONE, &[]), // LLVM 22
    amd(0x45, "gfx1036", "10.3", NONE, &[]), // LLVM 22
    amd(0x46, "gfx1101", "11", NONE, &[]), // LLVM 22
    amd(0x47, "gfx1102", "11", NONE, &[]), // LLVM 22
    amd(0x48, "gfx1200", "12", NONE, &[]), // LLVM 22
    amd(0x49, "gfx1250", "12.5", NONE, &[]), // LLVM 22
    amd(0x4a, "gfx1151", "11", NONE, &[]), // LLVM 22
    amd(0x4c, "gfx942", "9.4", BOTH, &[]), // LLVM 22
    amd(0x4e, "gfx1201", "12", NONE, &[]), // LLVM 22
    amd(0x4f, "gfx950", "9.4", BOTH, &[]), // LLVM 22
    amd(0x50, "gfx1310", "13", NONE, &[]), // llvm/llvm-project#177355
    amd(0x51, "gfx9-generic", "", XNACK, &[]), // LLVM 22
    amd(0x52, "gfx10-1-generic", "", XNACK, &[]), // LLVM 22
    amd(0x53, "gfx10-3-generic", "", NONE, &[]), // LLVM 22
    amd(0x54, "gfx11-generic", "", NONE, &[]), // LLVM 22
    amd(0x55, "gfx1152", "11", NONE, &[]), // LLVM 22
    amd(0x57, "gfx1154", "11", NONE, &[]), // llvm/llvm-project#204816
    amd(0x58, "gfx1153", "11", NONE, &[]), // LLVM 22
    amd(0x59, "gfx12-generic", "", NONE, &[]), // LLVM 22
    amd(0x5a, "gfx1251", "12.5", NONE, &[]), // LLVM 22
    amd(0x5b, "gfx12-5-generic", "", NONE, &[]), // llvm/llvm-project#183381
    amd(0x5c, "gfx1172", "11.7", NONE, &[]), // llvm/llvm-project#187735
    amd(0x5d, "gfx1170", "11.7", NONE, &[]), // llvm/llvm-project#180185
    amd(0x5e, "gfx1171", "11.7", NONE, &[]), // llvm/llvm-project#187735
    amd(0x5f, "gfx9-4-generic", "", BOTH, &[]), // LLVM 22
    amd(0x62, "gfx11-7-generic", "", NONE, &[]), // llvm/llvm-project#205363
    amd(0x63, "gfx13-generic", "", NONE, &[]), // llvm/llvm-project#205363
    amd(0xeb, "gfx1250-strict", "", NONE, &[]), // llvm/llvm-project#218543
];

/// The major versions, each with the generic processor that covers it, if there is one. Processors
/// without a family have instructions that no generic processor has (gfx810, gfx908, gfx90a).
pub(super) const FAMILIES: [(&str, Option<&str>); 12] = [
    ("6", None),
    ("7", None),
    ("8", None),
    ("9", Some("gfx9-generic")),
    ("9.4", Some("gfx9-4-generic")),
    ("10.1", Some("gfx10-1-generic")),
    ("10.3", Some("gfx10-3-generic")),
    ("11", Some("gfx11-generic")),
    ("11.7", Some("gfx11-7-generic")),
    ("12", Some("gfx12-generic")),
    ("12.5", Some("gfx12-5-generic")),
    ("13", Some("gfx13-generic")),
];
