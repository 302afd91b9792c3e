//! Tools other than links, one module each. Tools do not call each other.

pub(crate) mod doctor;
pub(crate) mod explain;
pub(crate) mod wrapper;
