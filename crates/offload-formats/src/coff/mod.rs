//! The parts of COFF objects (Windows) that offload tools read.
//!
//! ```
//! let directives = offload_formats::coff::drectve::read(b"/DEFAULTLIB:msvcrt /include:main");
//! assert_eq!((directives.default_libraries[0].as_str(), directives.include[0].as_str()), ("msvcrt", "main"));
//! ```

pub mod drectve;
pub mod resize;

use crate::bytes::number;
use crate::error::Malformed;

/// The size of a section header.
pub(crate) const SECTION_SIZE: u64 = 40;
/// The size of a relocation.
pub(crate) const RELOCATION_SIZE: u64 = 10;

/// The header of an object.
pub(crate) struct Header {
    pub machine: u16,
    pub time: u32,
    pub characteristics: u16,
    /// The number of sections, and the offset of their headers.
    pub sections: u32,
    pub sections_at: u64,
    pub symbols_at: u64,
    pub symbols: u32,
    /// Whether the object may have more than 65279 sections (`/bigobj`).
    pub big: bool,
}

impl Header {
    pub(crate) fn read(data: &[u8]) -> Result<Self, Malformed> {
        let field =
            |at, size| number(data, at, size, "COFF header past the end").map(|value| value as u32);
        let big = field(0, 4)? == 0xffff_0000;
        Ok(if big {
            Header {
                machine: field(6, 2)? as u16,
                time: field(8, 4)?,
                characteristics: 0,
                sections: field(44, 4)?,
                sections_at: 56,
                symbols_at: field(48, 4)?.into(),
                symbols: field(52, 4)?,
                big,
            }
        } else {
            Header {
                machine: field(0, 2)? as u16,
                time: field(4, 4)?,
                characteristics: field(18, 2)? as u16,
                sections: field(2, 2)?,
                sections_at: 20 + u64::from(field(16, 2)?),
                symbols_at: field(8, 4)?.into(),
                symbols: field(12, 4)?,
                big,
            }
        })
    }

    /// The size of a symbol.
    pub(crate) fn symbol_size(&self) -> u64 {
        if self.big { 20 } else { 18 }
    }

    /// The offset behind the last symbol, where the strings begin.
    pub(crate) fn strings_at(&self) -> u64 {
        self.symbols_at + u64::from(self.symbols) * self.symbol_size()
    }
}
