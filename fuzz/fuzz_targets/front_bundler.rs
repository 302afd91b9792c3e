//! `clang-offload-bundler`, its line and the file that it reads.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| offld_fuzz::tool(&[&["clang-offload-bundler"]], data));
