//! Archives of objects (`ar`): one reader for all variants that linkers accept, and a writer of GNU
//! archives.
//!
//! ```
//! use offld::formats::archive::{MemberContents, members, write_plain};
//!
//! let mut file = Vec::new();
//! write_plain([("a.o".to_owned(), &b"first"[..]), ("b.o".to_owned(), b"second")].into_iter(), &mut file)?;
//! let member = members(&file)?.nth(1).ok_or("no second member")??;
//! assert_eq!(member.name, b"b.o");
//! let MemberContents::Within { offset, size } = member.contents else { return Err("a thin archive".into()) };
//! assert_eq!(&file[offset as usize..(offset + size) as usize], b"second");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub(crate) mod name;
mod read;
pub(crate) mod resize;
mod write;

pub(crate) use read::shown_name;
pub use read::{ArchiveFault, ArchiveMember, ArchiveMembers, MemberContents, member_at, members};
pub use write::{NewMember, write, write_plain};
