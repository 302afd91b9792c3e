//! Archives.
use super::Request;
use crate::formats::bundle::Id;
use crate::session::Session;
pub(super) fn unbundle(_request: &Request, _ids: &[Id], _session: &Session) -> anyhow::Result<()> {
    anyhow::bail!("archives are not unbundled yet")
}
