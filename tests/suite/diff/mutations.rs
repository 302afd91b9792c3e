//! Random programs with one change: of something that runs, which `offld diff` must report for the
//! kernels that reach it and no others, or of something that does not run, such as the order of
//! functions, the path of the source, and debug information.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use libtest_mimic::{Failed, Trial};
use serde_json::Value;

use crate::effort;
use crate::support::{
    Outcome, Random, Work, cuda_tools, ensure, llvm, missing, offld, output, passed, run, shown,
    test,
};

pub(super) fn trials() -> Vec<Trial> {
    let all = [
        (Gpu::Amd, "gfx90a"),
        (Gpu::Amd, "gfx1100"),
        (Gpu::Amd, "gfx1201"),
        (Gpu::Nvidia, "sm_90"),
        (Gpu::Ptx, "sm_90"),
    ];
    let each = all.into_iter().flat_map(|(gpu, arch)| {
        let name = if gpu == Gpu::Ptx { "ptx" } else { arch };
        // `make test` runs without NVIDIA's tools.
        let start = if gpu == Gpu::Amd { "" } else { "releases::" };
        [
            test(format!("{start}diff::mutations::{name}"), move || {
                changes(gpu, arch)
            }),
            test(format!("{start}diff::rebuilds::{name}"), move || {
                rebuilds(gpu, arch)
            }),
        ]
    });
    each.collect()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Gpu {
    Amd,
    Nvidia,
    /// PTX for NVIDIA.
    Ptx,
}

const KERNELS: usize = 6;
const FUNCTIONS: usize = 4;
const TABLES: usize = 3;

/// Everything in a program that can differ.
#[derive(Clone)]
struct Program {
    /// The constants of each function.
    factors: [i64; FUNCTIONS],
    /// Whether each function is a call, or a part of its callers.
    is_call: [bool; FUNCTIONS],
    /// A number in each table.
    tables: [i64; TABLES],
    /// The bounds of the loop in each kernel, and how far it is unrolled.
    bounds: [i64; KERNELS],
    unrolled: [i64; KERNELS],
    /// The numbers in the shared memory of each kernel.
    shared: [i64; KERNELS],
    /// The largest block of each kernel.
    block: [i64; KERNELS],
    /// The constant that each kernel adds.
    added: [i64; KERNELS],
    /// The order of functions and kernels in the source.
    order: Vec<usize>,
    /// A further kernel, which calls functions too.
    has_more: bool,
}

impl Program {
    fn new(random: &mut Random) -> Program {
        let mut number = |least: i64, count: usize| least + random.below(count) as i64;
        Program {
            factors: std::array::from_fn(|at| 1000 * at as i64 + number(3, 900)),
            is_call: std::array::from_fn(|_| number(0, 3) > 0),
            tables: std::array::from_fn(|at| 10_000 * at as i64 + number(5, 9000)),
            bounds: std::array::from_fn(|_| number(20, 100)),
            unrolled: std::array::from_fn(|_| number(1, 3)),
            shared: std::array::from_fn(|_| number(64, 64)),
            block: std::array::from_fn(|_| 64 * number(1, 8)),
            added: std::array::from_fn(|at| 100_000 * (1 + at as i64) + number(7, 900)),
            order: (0..KERNELS).collect(),
            has_more: false,
        }
    }

    /// Changes something that runs. Returns the kernels that it concerns.
    fn change(&mut self, random: &mut Random) -> (String, BTreeSet<usize>) {
        let kernel = random.below(KERNELS);
        let only = BTreeSet::from([kernel]);
        match random.below(7) {
            0 => {
                let function = random.below(FUNCTIONS);
                self.factors[function] += 1;
                let callers = (0..KERNELS).filter(|kernel| kernel % FUNCTIONS == function);
                (format!("factor {function}"), callers.collect())
            }
            1 => {
                let table = random.below(TABLES);
                self.tables[table] += 1;
                let readers = (0..KERNELS).filter(|kernel| kernel % TABLES == table);
                (format!("table {table}"), readers.collect())
            }
            2 => {
                self.bounds[kernel] += 1;
                (format!("bound {kernel}"), only)
            }
            3 => {
                self.unrolled[kernel] += 3;
                (format!("unrolled {kernel}"), only)
            }
            4 => {
                self.shared[kernel] += 64;
                (format!("shared {kernel}"), only)
            }
            5 => {
                self.block[kernel] += 64;
                (format!("block {kernel}"), only)
            }
            _ => {
                self.added[kernel] += 1;
                (format!("added {kernel}"), only)
            }
        }
    }

    /// Moves code, and changes nothing that runs.
    fn move_parts(&mut self, random: &mut Random) {
        for at in (1..KERNELS).rev() {
            self.order.swap(at, random.below(at + 1));
        }
        self.has_more = random.below(2) == 0;
    }

    fn source(&self) -> String {
        let mut text = String::from(
            "#define GLOBAL __attribute__((global))\n\
             #define DEVICE static __attribute__((device))\n\
             #define SHARED __attribute__((shared))\n\
             #ifdef __AMDGCN__\n#define TID __builtin_amdgcn_workitem_id_x()\n\
             #define BLOCK(N) __attribute__((amdgpu_flat_work_group_size(1, N)))\n\
             #define TABLE DEVICE const\n\
             #else\n#define TID __nvvm_read_ptx_sreg_tid_x()\n\
             #define BLOCK(N) __attribute__((launch_bounds(N)))\n\
             #define TABLE __attribute__((constant))\n#endif\n",
        );
        // Code for NVIDIA contains the offsets of constants, so they stay in their order.
        for (table, number) in self.tables.iter().enumerate() {
            let _ = writeln!(
                text,
                "TABLE int table{table}[8] = {{{number}, 2, 3, 4, 5, 6, 7, {table}}};"
            );
        }
        let places: Vec<usize> = self.order.clone();
        for function in places.iter().filter(|at| **at < FUNCTIONS) {
            let call = if self.is_call[*function] {
                "noinline"
            } else {
                "always_inline"
            };
            let _ = writeln!(
                text,
                "DEVICE __attribute__(({call})) int function{function}(int x) {{ return (x ^ {}) * x + {function}; }}",
                self.factors[*function]
            );
        }
        for kernel in places {
            let _ = writeln!(
                text,
                "GLOBAL BLOCK({block}) void kernel{kernel}(int *p, int n) {{\n  \
                   SHARED static int shared{kernel}[{shared}];\n  int sum = {added} + TID;\n\
                 #pragma unroll {unrolled}\n  \
                   for (int i = 0; i < {bound}; i++) sum = sum * 7 + p[sum & 255] + i;\n  \
                   shared{kernel}[sum & 63] = sum; sum += shared{kernel}[n & 63];\n  \
                   p[TID] = function{function}(sum) + table{table}[sum & 7];\n}}",
                block = self.block[kernel],
                shared = self.shared[kernel],
                added = self.added[kernel],
                unrolled = self.unrolled[kernel],
                bound = self.bounds[kernel],
                function = kernel % FUNCTIONS,
                table = kernel % TABLES,
            );
            if self.has_more && kernel == 2 {
                text.push_str(
                    "GLOBAL void more(int *p) { p[TID] = function1(p[1]) + table2[p[2] & 7]; }\n",
                );
            }
        }
        text
    }

    /// Compiles the program to `name` in a directory of its own.
    fn compile(
        &self,
        work: &Work,
        name: &str,
        (gpu, arch): (Gpu, &str),
        more: &[&str],
    ) -> Result<String, Failed> {
        let folder = work.path().join(format!("sources-{name}"));
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join("kernels.cu"), self.source())?;
        let mut command = work.command(llvm("clang++"));
        command.args(["-O2", "--cuda-device-only", "-nogpulib", "-nogpuinc", "-c"]);
        command.arg(format!("--offload-arch={arch}"));
        match gpu {
            Gpu::Amd => command.args(["-x", "hip", "-fno-gpu-rdc", "--no-gpu-bundle-output"]),
            Gpu::Nvidia | Gpu::Ptx => {
                let cuda = cuda_tools(22).ok_or("no tools")?;
                command
                    .args(["-x", "cuda", "-Wno-unknown-cuda-version"])
                    .arg(format!("--cuda-path={}", cuda.display()))
            }
        };
        command.args(more);
        if gpu == Gpu::Ptx {
            command.arg("-S");
        }
        run(command
            .arg("kernels.cu")
            .arg("-o")
            .arg(work.path().join(name))
            .current_dir(&folder))?;
        Ok(name.to_owned())
    }
}

/// The kernels that differ, by number; of renamed ones the later name.
fn differing(work: &Work, old: &str, new: &str) -> Result<BTreeSet<usize>, Failed> {
    let mut command = work.command(offld());
    command.args(["diff", "--json", old, new]);
    let ended = output(&mut command)?;
    let json: Value = serde_json::from_slice(&ended.stdout)
        .map_err(|error| format!("{error}\n{}", shown(&command, &ended)))?;
    let mut found = BTreeSet::new();
    for change in json["archs"].as_array().into_iter().flatten() {
        for change in change["changes"].as_array().into_iter().flatten() {
            let name = change["kernel"].as_str().unwrap_or_default();
            if name.starts_with("more(") {
                continue;
            }
            let number = name.strip_prefix("kernel").and_then(|rest| rest.get(..1));
            let number = number.and_then(|number| number.parse().ok());
            found.insert(number.ok_or_else(|| format!("an unknown kernel: {change}"))?);
        }
    }
    let expected = if json["archs"][0]["changes"]
        .as_array()
        .is_none_or(Vec::is_empty)
    {
        0
    } else {
        1
    };
    ensure(ended.status.code() == Some(expected), || {
        shown(&command, &ended)
    })?;
    Ok(found)
}

fn available(gpu: Gpu) -> bool {
    gpu == Gpu::Amd || cuda_tools(22).is_some()
}

fn changes(gpu: Gpu, arch: &'static str) -> Outcome {
    if !available(gpu) {
        return missing("NVIDIA's tools (make setup-cuda)");
    }
    let work = Work::new();
    for seed in 0..effort::rounds("programs", 125, 8) {
        let mut random = Random(0x9e37_79b9 + seed as u64 * 0x1234_5677);
        let mut program = Program::new(&mut random);
        let old = program.compile(&work, "old", (gpu, arch), &[])?;
        let (what, expected) = program.change(&mut random);
        program.move_parts(&mut random);
        let new = program.compile(&work, "new", (gpu, arch), &[])?;
        let found = differing(&work, &old, &new)?;
        // Kernels for NVIDIA compute addresses of constants, so any of them may read a table.
        let may_be_more = gpu == Gpu::Nvidia && what.starts_with("table");
        ensure(
            found == expected || may_be_more && found.is_superset(&expected),
            || format!("seed {seed}, {what}: {found:?} differ instead of {expected:?}"),
        )?;
    }
    passed()
}

fn rebuilds(gpu: Gpu, arch: &'static str) -> Outcome {
    if !available(gpu) {
        return missing("NVIDIA's tools (make setup-cuda)");
    }
    let work = Work::new();
    for seed in 0..effort::rounds("programs", 125, 8) {
        let mut random = Random(0x51f1_5eed + seed as u64 * 0x0765_4321);
        let mut program = Program::new(&mut random);
        let old = program.compile(&work, "old", (gpu, arch), &[])?;
        program.move_parts(&mut random);
        let more: &[&str] = match random.below(3) {
            0 => &["-g"],
            1 => &["-gline-tables-only"],
            _ => &[],
        };
        let new = program.compile(&work, "new", (gpu, arch), more)?;
        let found = differing(&work, &old, &new)?;
        ensure(found.is_empty(), || {
            format!("seed {seed}, {more:?}: {found:?} differ")
        })?;
    }
    passed()
}
