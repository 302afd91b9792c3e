//! Compiles the kernels, and makes clang link with offld, whose path comes from `pkg-config`.

use std::path::Path;
use std::process::Command;

fn main() {
    let out = std::env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    let offload = ["-O2", "-fPIC", "-fopenmp", "-fopenmp-targets=x86_64-pc-linux-gnu"];
    let mut objects = Vec::new();
    for name in ["scale", "sum"] {
        let object = format!("{out}/{name}.o");
        run(Command::new("clang").args(offload).args(["-c", &format!("src/{name}.c"), "-o", &object]));
        objects.push(object);
    }
    run(Command::new("ar").arg("rcs").arg(format!("{out}/libkernels.a")).args(&objects));
    // `rustc-link-arg` applies to the program and to the library. .cargo/config.toml makes clang
    // the linker.
    println!("cargo:rustc-link-arg={out}/libkernels.a");
    println!("cargo:rustc-link-arg=--ld-path={}", run(Command::new("pkg-config").args(["--variable=linker", "offld"])).trim());
    // The OpenMP runtimes that clang would add for -fopenmp. offld adds -lomptarget if there are
    // images.
    for library in ["libomp.so", "libomptarget.so"] {
        let found = run(Command::new("clang").arg(format!("-print-file-name={library}")));
        if let Some(folder) = Path::new(found.trim()).parent() {
            println!("cargo:rustc-link-arg=-L{}", folder.display());
        }
    }
    println!("cargo:rustc-link-arg=-lomp");
    println!("cargo:rerun-if-changed=src");
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}
