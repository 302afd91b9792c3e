//! The parts of COFF objects (Windows) that offload tools read.
//!
//! ```
//! let told = offld::formats::coff::drectve::read(b"/DEFAULTLIB:msvcrt /include:main");
//! assert_eq!((told.default_libraries[0].as_str(), told.include[0].as_str()), ("msvcrt", "main"));
//! ```

pub mod drectve;
pub(crate) mod resize;
