//! The parts of COFF objects (Windows) that offload tools read.

pub mod drectve;
