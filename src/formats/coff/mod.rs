//! The parts of COFF objects (Windows) that offload tools read.
//!
//! ```
//! let directives = offld::formats::coff::drectve::read(b"/DEFAULTLIB:msvcrt /include:main");
//! assert_eq!((directives.default_libraries[0].as_str(), directives.include[0].as_str()), ("msvcrt", "main"));
//! ```

pub mod drectve;
pub(crate) mod resize;
