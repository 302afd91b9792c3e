//! placeholder
use std::path::Path;
/// x
pub struct StreamedImage<'a> {
    /// x
    pub symbol: String,
    /// x
    pub head: Vec<u8>,
    /// x
    pub body: &'a Path,
    /// x
    pub body_size: u64,
    /// x
    pub total_size: u64,
}
/// x
pub fn write(_o: &mut std::fs::File, _h: &str, _r: bool, _i: &[StreamedImage<'_>]) -> anyhow::Result<()> {
    anyhow::bail!("no")
}
