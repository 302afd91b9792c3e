//! The cache of device links: files and small records that outlive the process and are shared by many processes. It knows nothing
//! of links: its users decide what a key is made of and what a record says.
//!
//! It holds two kinds of things. A **blob** is a file, named by the digest of its contents, so that damage is noticed. A **record**
//! is some bytes under a key, with a digest of their own. The cache never makes a link fail: what cannot be read counts as missing,
//! and what cannot be written is not kept.

pub(crate) mod digest;
pub(crate) mod front;
pub(crate) mod local;
pub(crate) mod remote;
pub(crate) mod secret;
pub(crate) mod settings;

pub(crate) use digest::KeyBuilder;
pub use digest::{BlobName, Digest, Key, Naming};
pub use front::Cache;
pub(crate) use local::Stats;
pub use local::{Event, Store};
pub(crate) use remote::Remote;
pub use remote::RemoteSettings;
pub use secret::SecretKey;
