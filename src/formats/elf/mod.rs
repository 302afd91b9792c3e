//! ELF: what offload tools need to know of objects, images and finished files.

pub mod edit;
pub mod interface;
pub mod wrapper_notes;
