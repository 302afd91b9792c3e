//! The cache of device links: files and small records that outlive the process and are shared by
//! many processes. It knows nothing about links: its users choose the parts of a key and the
//! contents of a record.
//!
//! It stores two kinds of entries. A **blob** is a file, named by the digest of its contents, so
//! that damage is detected. A **record** is some bytes under a key, with a digest of their own. The
//! cache never makes a link fail: unreadable entries count as missing, and failed writes are
//! skipped.

pub(crate) mod cache;
pub(crate) mod digest;
pub mod local;
pub mod remote;
pub mod settings;

pub use cache::{Cache, Scope};
pub use cache::{Caching, Reason};
pub use digest::KeyBuilder;
pub use digest::{BlobName, Digest, Key, Naming};
pub use local::Stats;
pub use local::{Event, Store};
pub use remote::Remote;
pub use remote::RemoteSettings;
pub use settings::SecretKey;
