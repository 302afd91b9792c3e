//! Links the binary at a fixed address. LLVM's tables hold several hundred thousand pointers; relocating them at every start costs
//! more than all the rest of a link without device code.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let unix = std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux");
    if unix && std::env::var_os("CARGO_FEATURE_LLVM").is_some() {
        println!("cargo:rustc-link-arg-bins=-no-pie");
    }
}
