//! Streams that are compressed again, so that the same bytes come out each time: what takes files apart checks by it whether a stream
//! can be restored, and what puts them together restores it.

use std::io::Write;

use anyhow::{Result, bail};

use super::compress;
use super::files::wheel::LEVEL as DEFLATE_LEVEL;
use super::places::Packing;
use super::recipe::PackedStep;
use super::{Levels, Outcome};
use crate::formats::compressed::Method;
use crate::io::piece::{Piece, Spool};
use crate::io::rope::Rope;

/// How to compress something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// As a compressed bundle of this version.
    Bundle(u16),
    /// As an OffloadBinary of version 3.
    OffloadBinary(Method),
    /// As a member of a zip file.
    Deflate,
}

impl Form {
    /// The form that a stream has.
    pub(crate) fn of(packing: Packing) -> Form {
        match packing {
            Packing::Bundle(header) => Form::Bundle(header.version),
            Packing::OffloadBinary(method) => Form::OffloadBinary(method),
            Packing::Deflate => Form::Deflate,
        }
    }

    /// The form that a recipe asks for.
    ///
    /// # Errors
    /// There is none of this name.
    pub(crate) fn from_step(step: &PackedStep) -> Result<Form> {
        let method = || match step.method.as_str() {
            "zstd" => Ok(Method::Zstd),
            "zlib" => Ok(Method::Zlib),
            other => bail!("compression `{other}` is not known here"),
        };
        match step.form.as_str() {
            "bundle" => Ok(Form::Bundle(step.version)),
            "offload-binary" => method().map(Form::OffloadBinary),
            "deflate" => Ok(Form::Deflate),
            other => bail!("streams of the form `{other}` are not known here"),
        }
    }

    /// Its names in a recipe: the form, its version, and the method.
    pub(crate) fn names(self) -> (&'static str, u16, &'static str) {
        match self {
            Form::Bundle(version) => ("bundle", version, "zstd"),
            Form::OffloadBinary(Method::Zstd) => ("offload-binary", 3, "zstd"),
            Form::OffloadBinary(Method::Zlib) => ("offload-binary", 3, "zlib"),
            Form::Deflate => ("deflate", 0, "deflate"),
        }
    }

    /// The level at which this program compresses such streams of its own accord.
    pub(crate) fn own_level(self) -> i32 {
        match self {
            Form::Deflate => DEFLATE_LEVEL as i32,
            Form::OffloadBinary(Method::Zlib) => compress::ZLIB_LEVEL as i32,
            Form::Bundle(_) | Form::OffloadBinary(Method::Zstd) => compress::LEVEL,
        }
    }
}

/// `plain`, compressed.
///
/// # Errors
/// It cannot be read, or is not what the form is for.
pub(crate) fn pack(plain: &Rope, form: Form, level: i32, spool: &mut Spool) -> Result<Piece> {
    let levels = Levels { level: Some(level), repack: true };
    let outcome = match form {
        Form::Bundle(version) => compress::bundle(plain, version, levels, spool)?,
        Form::OffloadBinary(method) => compress::offload_binary(plain, method, levels, spool)?,
        Form::Deflate => {
            return spool.add(|file| {
                let level = flate2::Compression::new(u32::try_from(level)?.min(9));
                let mut encoder = flate2::write::DeflateEncoder::new(&mut *file, level);
                plain.write_to(&mut encoder)?;
                encoder.finish()?.flush()?;
                Ok(())
            });
        }
    };
    match outcome {
        Outcome::New(new) => new.bytes.into_piece(spool),
        Outcome::Same | Outcome::Gone => bail!("nothing came out of a compressor"),
    }
}
