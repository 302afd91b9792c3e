//! Tools other than links, one directory each. Each is a request to the library, and none calls
//! another.

pub(crate) mod doctor;
pub(crate) mod explain;
pub(crate) mod wrapper;
