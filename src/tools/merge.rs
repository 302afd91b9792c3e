//! Files are put together: of a host part and the parts of devices that `split` has made of one
//! file (`parts`), or of whole builds that were each compiled for other devices: a file of each
//! (`builds`), a wheel (`wheels`) or a folder (`folders`).

pub(crate) mod builds;
pub(crate) mod folders;
mod names;
pub(crate) mod parts;
mod wheels;
