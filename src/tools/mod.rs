//! Tools other than links, one directory each. Each is a request to the library, and none calls
//! another.

pub(crate) mod bundler;
pub(crate) mod check;
pub(crate) mod doctor;
pub(crate) mod explain;
pub(crate) mod inspect;
pub(crate) mod merge;
pub(crate) mod packager;
pub(crate) mod prune;
pub(crate) mod replace;
pub(crate) mod size;
pub(crate) mod split;
pub(crate) mod strip_device;
pub(crate) mod wrapper;
