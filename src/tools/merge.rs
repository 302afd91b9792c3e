//! Files are put together: of a host part and the parts of devices that `split` has made of one file (`parts`), or of whole builds
//! that were each compiled for other devices (`builds`).

pub(crate) mod builds;
pub(crate) mod parts;
