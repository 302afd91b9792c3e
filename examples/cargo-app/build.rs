//! Compiles the kernels into a fat object (host code with embedded device code) and an archive,
//! without any crates.

use std::{env, path::PathBuf, process::Command};

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let clang = env::var("CXX").unwrap_or_else(|_| "clang++-22".into());
    let device = env::var("DEVICE").unwrap_or_else(|_| "x86_64-pc-linux-gnu".into());

    run(Command::new(&clang)
        .args(["-O2", "-fPIC", "-fno-exceptions", "-fno-rtti", "-fopenmp"])
        .arg(format!("-fopenmp-targets={device}"))
        .args(["-c", "kernel/kernel.cpp", "-o"])
        .arg(out.join("kernel.o")));
    run(Command::new("ar").arg("rcs").arg(out.join("libkernel.a")).arg(out.join("kernel.o")));

    println!("cargo:rustc-link-search=native={}", out.display());
    println!("cargo:rustc-link-lib=static=kernel");
    // clang's library directory, with its OpenMP runtimes. offld adds -lomptarget if there are
    // images to register.
    for library in ["libomp.so", "libomptarget.so"] {
        let found = run(Command::new(&clang).arg(format!("-print-file-name={library}")));
        if let Some(folder) = PathBuf::from(found.trim()).parent() {
            println!("cargo:rustc-link-search=native={}", folder.display());
        }
    }
    println!("cargo:rustc-link-lib=omp");
    println!("cargo:rerun-if-changed=kernel");
    println!("cargo:rerun-if-env-changed=CXX");
    println!("cargo:rerun-if-env-changed=DEVICE");
}

/// Runs the command and returns its output. A failure fails the build and prints the command.
fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(output.status.success(), "{command:?}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}
