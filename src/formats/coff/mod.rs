//! COFF: what offload tools need to know of Windows objects.

pub mod drectve;
