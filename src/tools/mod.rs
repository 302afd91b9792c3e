//! The tools beside the link, a folder each: each is a request to the library, and none calls another.

pub mod bundler;
pub mod inspect;
pub mod packager;
pub mod wrapper;
