//! A store of files and small records that outlives the process and is shared by many: what device links made, and what is known
//! of them. It knows nothing of links: `device` decides what a key is made of and what a record says.
//!
//! Two kinds of things are in it. A **blob** is a file named by the digest of its contents, so that a damaged one tells itself. A
//! **record** is some bytes under a key, with a checksum of their own. Nothing here is an error for a link: what cannot be read is
//! not there, what cannot be written is not kept.

pub mod digest;
pub mod front;
pub mod local;
pub mod remote;
pub mod settings;

pub use digest::{Digest, KeyBuilder};
pub use front::Cache;
pub use local::{Event, Stats, Store};
pub use remote::{Remote, RemoteSettings};
