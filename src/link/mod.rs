//! The link: a straight line of stages, each of which takes the previous stage's value by reference and returns a new one. `pipeline`
//! is the line as one page; read it first. Stages do not call each other.

pub mod device;
pub mod host;
pub mod inputs;
pub mod payload;
pub mod pipeline;
pub mod register;
pub mod reproduce;
pub mod scan;
pub mod select;
