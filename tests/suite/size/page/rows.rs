//! Rows like those of a large library: kernels of many templates, with long names, for several
//! architectures.

use offload_files::size::page::PageRow;

use crate::support::Random;

fn below(random: &mut Random, end: u64) -> u64 {
    random.next() % end
}

fn pick<'a>(random: &mut Random, from: &[&'a str]) -> &'a str {
    from[random.below(from.len())]
}

const ARCHITECTURES: [&str; 6] = [
    "sm_75",
    "sm_80",
    "sm_86",
    "sm_90a",
    "sm_100a",
    "compute_120 (PTX)",
];
const TYPES: [&str; 10] = [
    "float",
    "double",
    "c10::Half",
    "c10::BFloat16",
    "int",
    "long",
    "c10::complex<float>",
    "signed char",
    "c10::Float8_e4m3fn",
    "bool",
];
const FUNCTORS: [&str; 12] = [
    "AddFunctor",
    "MulFunctor",
    "DivFunctor",
    "MaximumFunctor",
    "CompareEqFunctor",
    "SigmoidFunctor",
    "GeluFunctor",
    "SiluFunctor",
    "PowFunctor",
    "HardswishFunctor",
    "LogAddExpFunctor",
    "BitwiseXorFunctor",
];
const UNITS: [(&str, &str); 14] = [
    (
        "aten/src/ATen/native/cuda/BinaryMulKernel.cu",
        "at::native::vectorized_elementwise_kernel",
    ),
    (
        "aten/src/ATen/native/cuda/BinaryMulKernel.cu",
        "at::native::unrolled_elementwise_kernel",
    ),
    (
        "aten/src/ATen/native/cuda/ActivationGeluKernel.cu",
        "at::native::elementwise_kernel",
    ),
    (
        "aten/src/ATen/native/cuda/ReduceSumProdKernel.cu",
        "at::native::reduce_kernel",
    ),
    (
        "aten/src/ATen/native/cuda/SoftMax.cu",
        "at::native::cunn_SoftMaxForward",
    ),
    (
        "aten/src/ATen/native/cuda/SoftMax.cu",
        "at::native::cunn_SoftMaxBackward",
    ),
    (
        "aten/src/ATen/native/cuda/Indexing.cu",
        "at::native::index_elementwise_kernel",
    ),
    (
        "aten/src/ATen/native/cuda/Sort.cu",
        "at::native::radixSortKVInPlace",
    ),
    (
        "aten/src/ATen/native/transformers/cuda/flash_attn/flash_fwd.cu",
        "pytorch_flash::flash_fwd_kernel",
    ),
    (
        "aten/src/ATen/native/transformers/cuda/flash_attn/flash_bwd.cu",
        "pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel",
    ),
    ("third_party/cutlass/gemm_f16.cu", "cutlass::Kernel2"),
    ("third_party/cutlass/gemm_f8.cu", "cutlass::device_kernel"),
    (
        "aten/src/ATen/native/cuda/layer_norm_kernel.cu",
        "at::native::vectorized_layer_norm_kernel",
    ),
    (
        "aten/src/ATen/native/cuda/DistributionNormal.cu",
        "at::native::distribution_elementwise_grid_stride_kernel",
    ),
];

fn arguments(random: &mut Random, template: &str) -> String {
    let (a, b) = (pick(random, &TYPES), pick(random, &TYPES));
    let (functor, n) = (pick(random, &FUNCTORS), 1 << below(random, 9));
    if template.starts_with("cutlass") {
        let (m, k, stages) = (
            16 << below(random, 5),
            16 << below(random, 4),
            2 + below(random, 5),
        );
        return format!(
            "<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int, int, int, int>, cutlass::gemm::collective::CollectiveMma<\
             cutlass::gemm::MainloopSm90TmaGmmaWarpSpecialized<{stages}, cute::tuple<cute::C<2>, cute::C<1>, cute::C<1>>, \
             cutlass::gemm::KernelTmaWarpSpecializedPingpong>, cute::tuple<cute::C<{m}>, cute::C<{n}>, cute::C<{k}>>, {a}, \
             cute::tuple<long, cute::C<1>, long>, {b}, cute::tuple<cute::C<1>, long, long>, cute::TiledMMA<cute::MMA_Atom<\
             cute::SM90_{m}x{n}x{k}_F32>>>, cutlass::epilogue::collective::CollectiveEpilogue<cutlass::epilogue::thread::{functor}<{b}>>>>"
        );
    }
    if template.contains("flash") {
        let yes_no = |random: &mut Random| {
            if below(random, 2) == 0 {
                "false"
            } else {
                "true"
            }
        };
        let flags: Vec<&str> = (0..6).map(|_| yes_no(random)).collect();
        return format!(
            "<pytorch_flash::Flash_fwd_kernel_traits<{n}, 128, 64, 4, false, false, {a}>, {}>",
            flags.join(", ")
        );
    }
    format!(
        "<{n}, at::native::BinaryFunctor<{a}, {b}, {a}, at::native::binary_internal::{functor}<{a}>>, std::array<char*, 3ul>>"
    )
}

/// About `kernels` kernels in a library of about `total` bytes: the same kernels for six
/// architectures, and other parts. With `compared`, the old version lacks one architecture and has
/// some different kernels.
pub(super) fn library(kernels: usize, total: u64, compared: bool) -> Vec<PageRow> {
    let random = &mut Random(7);
    let each = kernels / ARCHITECTURES.len();
    let mean = total * 8 / 10 / kernels as u64;
    let mut rows = Vec::new();
    for index in 0..each {
        let (unit, template) =
            UNITS[usize::try_from(below(random, UNITS.len() as u64)).unwrap_or(0)];
        let arguments = arguments(random, template);
        let kernel = format!(
            "void {template}{arguments}(int, {index}ul, float const*, std::array<char*, 3ul>)"
        );
        // A few kernels are much larger than most.
        let weight = 1
            + below(random, 30).pow(6) / 20_000_000
            + if template.contains("flash") { 12 } else { 0 };
        for (number, arch) in ARCHITECTURES.iter().enumerate() {
            let bytes = mean * weight / 10 * (6 + number as u64) / 8 + below(random, 900);
            let mut row = PageRow {
                arch: (*arch).into(),
                unit: unit.into(),
                template: template.into(),
                kernel: kernel.as_str().into(),
                part: "code".into(),
                file: bytes * 2 / 5,
                inflated: bytes,
                ..PageRow::default()
            };
            let change = below(random, 40);
            if compared && number != 4 && change != 0 {
                let old = if change < 6 {
                    bytes * (80 + below(random, 30)) / 100
                } else {
                    bytes
                };
                (row.old_file, row.old_inflated) = (Some(old * 2 / 5), Some(old));
            }
            if compared && change == 1 && row.old_file.is_some() {
                (row.file, row.inflated) = (0, 0);
            }
            rows.push(row);
        }
    }
    rows.extend(around(total, compared));
    rows
}

/// Parts of a library other than kernels.
fn around(total: u64, compared: bool) -> Vec<PageRow> {
    let mut rows = Vec::new();
    let mut push = |arch: &str, part: &str, thousandth: u64| {
        let bytes = total * thousandth / 1000;
        let old = compared.then_some(bytes - bytes / 50 * (thousandth % 3));
        let [arch, part] = [arch, part].map(Into::into);
        rows.push(PageRow {
            arch,
            part,
            file: bytes,
            inflated: bytes,
            old_file: old,
            old_inflated: old,
            ..PageRow::default()
        });
    };
    for (part, thousandth) in [
        ("code", 60),
        ("data", 22),
        ("symbols", 19),
        ("relocations", 6),
        ("registration", 1),
        ("headers", 1),
    ] {
        push("host", part, thousandth);
    }
    for arch in ARCHITECTURES {
        for (part, thousandth) in [
            ("constants", 3),
            ("symbols", 4),
            ("relocations", 1),
            ("notes", 2),
            ("headers", 1),
        ] {
            push(arch, part, thousandth);
        }
    }
    push("", "container", 3);
    push("", "padding", 2);
    rows
}
