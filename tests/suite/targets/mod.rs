//! Which code is for one device: AMD GPUs under two names, triples in several spellings, and an
//! architecture with and without feature settings.

mod amd_names;
mod amd_registrations;
mod one_image;

use libtest_mimic::Trial;

pub(crate) fn trials() -> Vec<Trial> {
    trials_of! { amd_names amd_registrations one_image }
}
