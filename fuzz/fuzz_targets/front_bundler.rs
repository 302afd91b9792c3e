//! `clang-offload-bundler`: its command line and its input file.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| offld_fuzz::tool(&[&["clang-offload-bundler"]], data));
