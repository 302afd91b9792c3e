//! Files are put together: of a host part and the parts of devices that `split` has made of one file.

pub(crate) mod parts;
