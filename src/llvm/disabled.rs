//! The functions of this folder in a build without LLVM: each says so.

use super::{Embedded, ModuleSymbols};
use crate::registration::Plan;
use anyhow::{Result, bail};

/// Fails: printing registration code takes LLVM.
pub fn print_module(_plan: &Plan) -> Result<String> {
    without("print registration code")
}

/// Fails: making registration code takes LLVM.
pub fn compile(_plan: &Plan) -> Result<Vec<u8>> {
    without("make registration code")
}

/// Fails: making registration code takes LLVM.
pub fn compile_bitcode(_plan: &Plan) -> Result<Vec<u8>> {
    without("make registration code")
}

/// Fails: making registration code takes LLVM.
pub fn compile_assembly(_plan: &Plan) -> Result<Vec<u8>> {
    without("make registration code")
}

/// Fails: which hosts there is code for takes LLVM to say.
pub fn check_host(_triple: &str) -> Result<()> {
    without("make registration code")
}

/// Fails: reading bitcode takes LLVM.
pub fn embedded_images(_bitcode: &[u8]) -> Result<Vec<Embedded>> {
    without("read bitcode")
}

/// Fails: reading bitcode takes LLVM.
pub fn symbols(_bitcode: &[u8]) -> Result<ModuleSymbols> {
    without("read bitcode")
}

/// The triple of the machine this runs on, as well as it can be told without LLVM.
pub fn default_triple() -> String {
    let arch = if cfg!(target_arch = "powerpc64") && cfg!(target_endian = "little") {
        "powerpc64le"
    } else if cfg!(target_arch = "x86") {
        "i686"
    } else {
        std::env::consts::ARCH
    };
    let rest = match std::env::consts::OS {
        "windows" if cfg!(target_env = "gnu") => "w64-windows-gnu",
        "windows" => "pc-windows-msvc",
        "macos" => "apple-darwin",
        _ if cfg!(target_env = "musl") => "unknown-linux-musl",
        _ => "unknown-linux-gnu",
    };
    format!("{arch}-{rest}")
}

fn without<T>(what: &str) -> Result<T> {
    bail!("this build of offld has no LLVM in it and cannot {what}; build it with the feature `llvm`")
}
