//! Reports and edits of files with device code. [`contents`] has the report of a file and the tree
//! of its parts down to device images. [`edit`] rebuilds that tree with other images.
//! [`image_object`] writes objects that contain only images. Each other module is the tool of that
//! name.

#![cfg_attr(
    test,
    expect(
        clippy::disallowed_types,
        reason = "unit tests run compilers and the compiled programs"
    )
)]

pub mod bundler;
pub mod check;
pub mod contents;
pub mod diff;
pub mod edit;
pub mod gate;
mod html;
pub mod image_object;
pub mod inspect;
pub mod kpack;
pub mod merge;
pub mod packager;
pub mod prune;
pub mod replace;
pub mod size;
pub mod split;
pub mod strip_device;

#[cfg(test)]
#[expect(dead_code, reason = "other crates use the rest")]
#[path = "../../offload-formats/src/reference.rs"]
mod reference;
