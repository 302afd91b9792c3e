//! The wrapper modules in Windows programs, in every form: the data that the runtime would find
//! there.

use libtest_mimic::Trial;

use super::program::{HOSTS, Host, Program, RUNTIME, kernel};
use crate::support::{
    Outcome, Work, ensure, expect_equal, expect_in, llvm, made, passed, run, with_llvm,
};

/// One test per host and wrapper.
pub(super) fn trials() -> Vec<Trial> {
    let both = |host: &'static Host| {
        [
            with_llvm(&format!("coff::wrapper::{}", host.triple), || {
                registered(*host, "llvm-offload-wrapper", "--triple")
            }),
            with_llvm(
                &format!("coff::wrapper::wr_11_od_10_{}", host.triple),
                || registered(*host, "clang-offload-wrapper", "--target"),
            ),
        ]
    };
    HOSTS.iter().flat_map(both).collect()
}

/// Images that pass through LLVM, and images that do not.
fn registered(host: Host, tool: &str, triple: &str) -> Outcome {
    let large: Vec<u8> = (0..1_100_003u32).map(|at| (at % 251) as u8).collect();
    for (first, forms) in [
        (&b"FIRST"[..], &["obj", "s", "bc"][..]),
        (&large, &["obj", "bc"]),
    ] {
        for form in forms {
            let work = Work::new();
            work.file("first", first);
            work.file("second", b"SECOND");
            let output = format!("wrapped.{form}");
            let mut wrap = work.command(made().links.join(tool));
            wrap.args([triple, host.triple, "-o", &output, "first", "second"]);
            run(wrap.args((tool == "llvm-offload-wrapper").then_some("--kind=openmp")))?;
            if *form != "obj" {
                work.run(
                    llvm("clang"),
                    ["-target", host.triple, "-c", &output, "-o", "wrapped.obj"],
                )?;
            }
            work.coff(
                host,
                "main.o",
                &[],
                &kernel("k", "int main(void) { return 0; }"),
            )?;
            work.coff(host, "runtime.o", &[], RUNTIME)?;
            let args = host.line(&["main.o", "wrapped.obj", "runtime.o"]);
            let linker = args
                .iter()
                .find_map(|word| word.strip_prefix("--linker-path="))
                .ok_or("no linker")?;
            run(work.command(linker).args(args.iter().filter(|word| {
                !word.starts_with("--host-triple=") && !word.starts_with("--linker-path=")
            })))?;
            let program = Program::read(&work, host)?;
            let (images, entries) = program.openmp()?;
            let same = images == [first, b"SECOND"];
            ensure(same, || {
                format!("{output} holds other images than it was given")
            })?;
            // The older wrapper uses another table, which is empty in this program.
            expect_equal(
                "the entries",
                if tool == "llvm-offload-wrapper" {
                    "k"
                } else {
                    ""
                },
                &entries.join(" "),
            )?;
            let register = program.symbol(".omp_offloading.descriptor_reg")?;
            expect_in(
                &format!("{:?}", program.constructors()?),
                &register.to_string(),
            )?;
        }
    }
    passed()
}
