//! The bundler: code objects of several targets in one file, and out of it again.

pub mod container;
pub mod piece;
