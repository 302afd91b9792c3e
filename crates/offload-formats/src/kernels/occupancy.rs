//! Occupancy: how many waves (AMD) or warps (NVIDIA) of a kernel can run at once on one unit of a
//! GPU, by its registers and static shared memory.
//!
//! Sources: for AMD, LLVM 22's `AMDGPUBaseInfo.cpp` (`IsaInfo`) and `AMDGPUSubtarget.cpp`
//! (`getOccupancyWithWorkGroupSizes`), which clang's `-Rpass-analysis=kernel-resource-usage` prints;
//! for NVIDIA, the CUDA C++ Programming Guide, "Technical Specifications per Compute Capability",
//! and the occupancy calculator of CUDA 13.

use serde::Serialize;

use super::Kernel;

/// How many waves or warps can run at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Occupancy {
    /// The number that can run: AMD's waves per SIMD, NVIDIA's warps per multiprocessor.
    pub running: u64,
    /// The number that the GPU can run at most.
    pub most: u64,
}

/// Returns the occupancy of a kernel in an image for the processor `arch`, such as `gfx90a:xnack+`
/// or `sm_90a`. None if the processor or the kernel's registers are unknown.
pub fn occupancy(kernel: &Kernel, arch: &str) -> Option<Occupancy> {
    match arch.strip_prefix("sm_") {
        Some(number) => on_nvidia(kernel, number),
        None => on_amd(kernel, arch.split(':').next().unwrap_or_default()),
    }
}

/// The limits of a SIMD of an AMD GPU, and of the compute unit with it.
struct Simd {
    /// `getMaxWavesPerEU`.
    waves: u64,
    /// Vector registers for waves of 64 threads, and the granularity of their allocation
    /// (`getTotalNumVGPRs`, `getVGPRAllocGranule`). For waves of 32 threads, both are twice as high.
    registers: u64,
    granule: u64,
    /// The scalar registers up to which this many waves run, most waves first; empty if scalar
    /// registers do not matter (`getOccupancyWithNumSGPRs`).
    scalar: &'static [(u64, u64)],
    /// Local memory of a compute unit in bytes.
    local: u64,
    /// Whether vector and accumulation registers share one file.
    is_unified: bool,
}

const SCALAR_OF_8_AND_9: &[(u64, u64)] = &[(80, 10), (88, 9), (100, 8), (u64::MAX, 7)];
const SCALAR_OF_6_AND_7: &[(u64, u64)] =
    &[(48, 10), (56, 9), (64, 8), (72, 7), (80, 6), (u64::MAX, 5)];
/// What a workgroup runs on: a compute unit, or a workgroup processor, which is two of them.
struct Unit {
    /// The SIMDs (`getEUsPerCU`).
    simds: u64,
    /// Local memory in bytes (`getLocalMemorySize`).
    local: u64,
    /// The workgroups of more than one wave that can run at once (`getMaxWorkGroupsPerCU`).
    groups: u64,
}

impl Unit {
    fn of(kernel: &Kernel, simd: &Simd) -> Unit {
        let unit = |simds, count| Unit {
            simds,
            local: simd.local * count,
            groups: 16 * count,
        };
        match kernel.workgroup_processor_mode {
            Some(1) => unit(4, 2),
            Some(_) => unit(2, 1),
            // Before gfx10.
            None => unit(4, 1),
        }
    }
}

fn simd(processor: &str) -> Option<Simd> {
    let version = processor.strip_prefix("gfx")?;
    let old = |scalar| Simd {
        waves: 10,
        registers: 256,
        granule: 4,
        scalar,
        local: 64 << 10,
        is_unified: false,
    };
    let unified = |local| Simd {
        waves: 8,
        registers: 512,
        granule: 8,
        local,
        is_unified: true,
        ..old(SCALAR_OF_8_AND_9)
    };
    let new = |waves, registers, granule| Simd {
        waves,
        registers,
        granule,
        ..old(&[])
    };
    Some(match version {
        "90a" | "942" | "9-4-generic" => unified(64 << 10),
        "950" => unified(160 << 10),
        // 1.5 times the registers (`FeatureGFX11FullVGPRs`, `Feature1_5xVGPRs`).
        "1100" | "1101" | "1151" | "1200" | "1201" | "12-generic" => new(16, 768, 12),
        _ if version.starts_with("101") || version == "10-1-generic" => new(20, 512, 4),
        _ if version.starts_with("103") || version == "10-3-generic" => new(16, 512, 8),
        _ if version.starts_with("11") && version.len() >= 4 => new(16, 512, 8),
        _ if version.starts_with('9') => old(SCALAR_OF_8_AND_9),
        _ if version.starts_with('8') && version.len() == 3 => old(SCALAR_OF_8_AND_9),
        _ if version.starts_with(['6', '7']) && version.len() == 3 => old(SCALAR_OF_6_AND_7),
        _ => return None,
    })
}

fn on_amd(kernel: &Kernel, processor: &str) -> Option<Occupancy> {
    let simd = simd(processor)?;
    let wave = kernel.wave_size?;
    let vector = kernel.vgprs?;
    let vector = match kernel.agprs {
        Some(agprs) if !simd.is_unified => vector.max(agprs),
        _ => vector,
    };
    let narrow = if wave == 32 { 2 } else { 1 };
    let allocated = vector.max(1).next_multiple_of(simd.granule * narrow);
    let by_vector = simd.registers * narrow / allocated;
    let scalar = kernel.sgprs.unwrap_or_default();
    let by_scalar = simd
        .scalar
        .iter()
        .find(|(registers, _)| scalar <= *registers)
        .map_or(simd.waves, |(_, waves)| *waves);
    let by_local = by_local(kernel, &simd, wave);
    let running = by_vector.min(by_scalar).min(by_local).min(simd.waves);
    Some(Occupancy {
        running: running.max(1),
        most: simd.waves,
    })
}

/// The waves that run on a SIMD at most, over all workgroup sizes that the kernel allows.
fn by_local(kernel: &Kernel, simd: &Simd, wave: u64) -> u64 {
    let unit = Unit::of(kernel, simd);
    let groups = unit.local / kernel.shared.unwrap_or_default().max(1);
    if groups == 0 {
        return 1;
    }
    let largest = kernel.max_workgroup.unwrap_or(1024).max(1);
    let slots = simd.waves * unit.simds;
    // For groups of `size` threads: the waves of a group, and the groups of a unit.
    let of_size = |size: u64| {
        let waves = size.div_ceil(wave);
        let most = match waves {
            // A single wave needs no barrier.
            1 => slots,
            _ => (slots / waves).min(unit.groups),
        };
        (waves, most.max(1).min(groups))
    };
    let (small, many) = of_size(1);
    let (large, few) = of_size(largest);
    let mut most = small * many;
    let least = large * few;
    if least >= most {
        most = least;
    } else {
        let left = slots.saturating_sub(many * small) / many;
        most += many * left.min((largest - 1) / wave + 1 - small);
    }
    most.div_ceil(unit.simds).clamp(1, simd.waves)
}

/// The limits of a multiprocessor.
struct Multiprocessor {
    version: &'static str,
    warps: u64,
    blocks: u64,
    /// Shared memory in bytes.
    shared: u64,
}

const fn sm(version: &'static str, warps: u64, blocks: u64, shared: u64) -> Multiprocessor {
    Multiprocessor {
        version,
        warps,
        blocks,
        shared: shared << 10,
    }
}

#[rustfmt::skip]
const MULTIPROCESSORS: [Multiprocessor; 21] = [
    sm("50", 64, 32, 64), // CUDA 12
    sm("52", 64, 32, 96), // CUDA 12
    sm("53", 64, 32, 64), // CUDA 12
    sm("60", 64, 32, 64), // CUDA 12
    sm("61", 64, 32, 96), // CUDA 12
    sm("62", 64, 32, 64), // CUDA 12
    sm("70", 64, 32, 96), // CUDA 12
    sm("72", 64, 32, 96), // CUDA 12
    sm("75", 32, 16, 64), // CUDA 13
    sm("80", 64, 32, 164), // CUDA 13
    sm("86", 48, 16, 100), // CUDA 13
    sm("87", 48, 16, 164), // CUDA 13
    sm("88", 48, 24, 100), // CUDA 13
    sm("89", 48, 24, 100), // CUDA 13
    sm("90", 64, 32, 228), // CUDA 13
    sm("100", 64, 32, 228), // CUDA 13
    sm("103", 64, 32, 228), // CUDA 13
    sm("107", 64, 32, 228), // CUDA 13
    sm("110", 48, 24, 228), // CUDA 13
    sm("120", 48, 24, 100), // CUDA 13
    sm("121", 48, 24, 100), // CUDA 13
];

/// The registers of a multiprocessor, and the units in which warps get them: registers, and warps.
const REGISTERS: u64 = 64 << 10;
const REGISTER_UNIT: u64 = 256;
const WARP_UNIT: u64 = 4;
const WARP: u64 = 32;
/// The block size for kernels that do not limit it.
const USUAL_BLOCK: u64 = 256;
/// The shared memory that CUDA itself uses in each block, from compute capability 8.0 on.
const RESERVED: u64 = 1 << 10;

fn on_nvidia(kernel: &Kernel, number: &str) -> Option<Occupancy> {
    let version = number.trim_end_matches(['a', 'f']);
    let limits = MULTIPROCESSORS
        .iter()
        .find(|limits| limits.version == version)?;
    let registers = (kernel.registers?.max(1) * WARP).next_multiple_of(REGISTER_UNIT);
    let warps = kernel
        .max_workgroup
        .unwrap_or(USUAL_BLOCK)
        .max(1)
        .div_ceil(WARP);
    let by_registers = REGISTERS / registers / WARP_UNIT * WARP_UNIT / warps;
    let is_new = version.parse::<u64>().is_ok_and(|version| version >= 80);
    let shared = kernel.shared.unwrap_or_default() + if is_new { RESERVED } else { 0 };
    let by_shared = limits.shared.checked_div(shared).unwrap_or(u64::MAX);
    let blocks = by_registers
        .min(by_shared)
        .min(limits.blocks)
        .min(limits.warps / warps);
    Some(Occupancy {
        running: blocks * warps,
        most: limits.warps,
    })
}
