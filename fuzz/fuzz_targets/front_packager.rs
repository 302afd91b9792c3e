//! `llvm-offload-binary`, its line and the file that it reads.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| offld_fuzz::tool(&[&["llvm-offload-binary"], &["clang-offload-packager"]], data));
