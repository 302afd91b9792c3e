//! The link: a straight line of stages, each of which takes the previous stage's value by reference and returns a new one. `pipeline`
//! is the line as one page; read it first. Stages do not call each other.

pub(crate) mod device;
pub(crate) mod host;
pub(crate) mod inputs;
pub(crate) mod payload;
pub(crate) mod pipeline;
pub(crate) mod register;
pub(crate) mod reproduce;
pub mod scan;
pub(crate) mod select;
