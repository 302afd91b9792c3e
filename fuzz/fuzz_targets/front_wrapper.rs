//! `llvm-offload-wrapper` and `clang-offload-wrapper`: their command lines and their input file.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| offld_fuzz::tool(&[&["llvm-offload-wrapper"], &["clang-offload-wrapper"]], data));
