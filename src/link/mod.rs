//! Stages of a link. Each stage takes the results of earlier stages by reference and returns a new
//! value. `pipeline` calls the stages in order; read it first. Stages do not call each other,
//! except for the helpers in `SHARED` of `tests/hygiene.rs`.

pub(crate) mod device;
#[cfg(fuzzing)]
pub(crate) mod fuzzing;
pub(crate) mod host;
pub(crate) mod inputs;
pub(crate) mod payload;
pub(crate) mod pipeline;
pub(crate) mod register;
pub(crate) mod reproduce;
pub(crate) mod scan;
pub(crate) mod select;
