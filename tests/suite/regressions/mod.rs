//! Defects found by use, attacks and differential runs, each with its number: `g05a_…` is the first
//! clause of number 5. Each test here has failed once. The code that the fix changed has its unit
//! tests next to it.

mod after_22;
mod amd_names;
mod amd_registrations;
mod cache_folder;
mod container_tools;
mod gpu_libraries;
mod half_images;
mod host_pulls;
mod inspecting;
mod kernel_arguments;
mod limits;
mod linker_alone;
mod linker_words;
mod one_image;
mod placeholders;
mod provenance;
mod recipes;
mod same_definitions;
mod setup;
mod shown_steps;
mod signals;
mod stale;
mod sycl_runtimes;
mod tables_and_ids;
mod thin_archives;
mod usage;
mod wheels;

use libtest_mimic::Trial;

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    trials.extend(after_22::trials());
    trials.extend(amd_names::trials());
    trials.extend(amd_registrations::trials());
    trials.extend(cache_folder::trials());
    trials.extend(container_tools::trials());
    trials.extend(gpu_libraries::trials());
    trials.extend(linker_words::trials());
    trials.extend(kernel_arguments::trials());
    trials.extend(half_images::trials());
    trials.extend(host_pulls::trials());
    trials.extend(inspecting::trials());
    trials.extend(limits::trials());
    trials.extend(linker_alone::trials());
    trials.extend(one_image::trials());
    trials.extend(placeholders::trials());
    trials.extend(provenance::trials());
    trials.extend(recipes::trials());
    trials.extend(same_definitions::trials());
    trials.extend(setup::trials());
    trials.extend(shown_steps::trials());
    trials.extend(signals::trials());
    trials.extend(stale::trials());
    trials.extend(sycl_runtimes::trials());
    trials.extend(tables_and_ids::trials());
    trials.extend(thin_archives::trials());
    trials.extend(usage::trials());
    trials.extend(wheels::trials());
    trials
}
