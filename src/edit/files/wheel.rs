//! Wheels.
use std::path::Path;

use anyhow::{Result, bail};

use super::{Change, Decide, Options};
use crate::formats::zip::is_zip;
use crate::io::piece::Piece;
use crate::io::rope::Rope;
use crate::sys::session::Session;

pub(super) fn is_wheel(piece: &Piece) -> bool {
    is_zip(piece.bytes())
}

pub(super) fn edit(
    _path: &Path,
    _piece: &Piece,
    _options: &Options,
    _session: &Session,
    _decide: &Decide<'_>,
    _change: &mut Change,
) -> Result<Option<Rope>> {
    bail!("not yet")
}
