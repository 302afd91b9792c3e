//! Writes the archive of a target. Members have the names that LLVM's bundler gives them, because
//! users extract them by name (docs/spec/containers.md 2.12.3, 2.12.4).

use std::path::Path;

use anyhow::Result;

use super::MemberObject;
use crate::io::file_slice::{Spool, write_archive};
use crate::io::outputs::{Output, io_error};
use crate::sys::session::Session;

/// Writes an archive of `chosen` to `out`, the output at `path`.
pub(super) fn archive(
    chosen: &[&MemberObject],
    path: &Path,
    out: &mut Output,
    spool: &mut Spool,
    session: &Session,
) -> Result<()> {
    let mut named = Vec::with_capacity(chosen.len());
    for one in chosen {
        named.push((
            member_name(&one.member, &one.entry.id, &one.id.target_id),
            one.entry.contents()?.into_piece(spool)?,
        ));
    }
    let members = named.iter().map(|(name, piece)| (name.as_str(), piece));
    write_archive(members, out, session).map_err(|error| io_error(path, &error))
}

/// `<stem>-<id><stem><ext>`, with colons replaced by underscores. The extension depends on the
/// target's processor.
fn member_name(member: &str, id: &str, target_id: &str) -> String {
    let file = member.rsplit('/').next().unwrap_or(member);
    let (stem, own) = match file.rfind('.').filter(|_| file != "." && file != "..") {
        Some(dot) => file.split_at(dot),
        None => (file, ""),
    };
    let ext = if target_id.contains("gfx") {
        ".bc"
    } else if target_id.contains("sm_") {
        ".cubin"
    } else {
        own
    };
    format!("{stem}-{id}{stem}{ext}").replace(':', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ob_52_ob_44_members_are_named_as_llvm_names_them() {
        for (member, id, target_id, name) in [
            (
                "func_1.o",
                "openmp-amdgcn-amd-amdhsa--gfx906",
                "gfx906",
                "func_1-openmp-amdgcn-amd-amdhsa--gfx906func_1.bc",
            ),
            (
                "func_1.o",
                "openmp-amdgcn-amd-amdhsa--gfx908:sramecc+:xnack-",
                "gfx908:sramecc+:xnack-",
                "func_1-openmp-amdgcn-amd-amdhsa--gfx908_sramecc+_xnack-func_1.bc",
            ),
            (
                "d/func_2.o",
                "openmp-nvptx64-nvidia-cuda-unknown-sm_70",
                "sm_70",
                "func_2-openmp-nvptx64-nvidia-cuda-unknown-sm_70func_2.cubin",
            ),
            (
                "func_1.o",
                "host-x86_64-unknown-linux-gnu-",
                "",
                "func_1-host-x86_64-unknown-linux-gnu-func_1.o",
            ),
            (
                "weird.name.o",
                "host-a-b-c-",
                "",
                "weird.name-host-a-b-c-weird.name.o",
            ),
            ("none", "host-a-b-c-", "", "none-host-a-b-c-none"),
        ] {
            assert_eq!(member_name(member, id, target_id), name);
        }
    }
}
