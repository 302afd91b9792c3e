//! `offld inspect`: all formats that it reads, and the extraction of images.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| offld_fuzz::tool(
    &[
        &["offld", "inspect", "--json"],
        &["offld", "inspect", "--kernels"],
        &["offld", "inspect", "--extract=out"],
        &["offld", "inspect", "--headers-only"],
        &["offld", "inspect"],
    ],
    data
));
