//! Archives of objects (`ar`): one reader for every kind that linkers take, one writer of GNU archives.

mod read;
mod write;

pub use read::{ArchiveFault, ArchiveMember, ArchiveMembers, MAX_NESTING, MemberContents, members};
pub use write::{NewMember, write, write_plain};
