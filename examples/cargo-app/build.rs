//! Compiles the kernels into fat objects (host code with device code embedded) and an archive of them. No crate is needed for it.

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
    // clang's own library folder, where its OpenMP runtimes are; offld itself adds -lomptarget when there are images to register.
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

/// What the command prints; a failure of it fails the build and shows the command.
fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(output.status.success(), "{command:?}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}
