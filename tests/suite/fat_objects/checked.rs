//! `-check-input-archive`: archives with incompatible code objects.

use libtest_mimic::Trial;

use super::{archive, by_ours, by_theirs, our_tool, refused};
use crate::bundler::{HOST, bundler, theirs, words};
use crate::support::{Outcome, Work, expect_in, passed, with_llvm};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        with_llvm(
            "fat_objects::archives::b22_ob_08_ob_35_ob_36_ob_54_conflicts_in_archives",
            conflicts,
        ),
        with_llvm(
            "fat_objects::archives::generic_targets_conflict_like_others",
            generic_targets,
        ),
    ]
}

const ANY: &str = "openmp-amdgcn-amd-amdhsa--gfx906";
const ON: &str = "openmp-amdgcn-amd-amdhsa--gfx906:xnack+";
const OFF: &str = "openmp-amdgcn-amd-amdhsa--gfx906:xnack-";

/// Bundlers refuse to make a bundle of both, so that the id in it is changed afterwards.
fn bundle(work: &Work, ids: &[&str], name: &str) -> Result<(), libtest_mimic::Failed> {
    let mut sources = vec![(HOST, Vec::new())];
    sources.extend(ids.iter().map(|id| (*id, b"a code object".to_vec())));
    let sources = sources
        .iter()
        .map(|(id, bytes)| offload_formats::bundle::Source {
            id,
            size: bytes.len() as u64,
            bytes: &bytes[..],
        });
    let mut out = Vec::new();
    offload_formats::bundle::write(sources.collect(), 1, &mut out)?;
    work.file(name, out);
    Ok(())
}

fn conflicts() -> Outcome {
    let work = Work::new();
    bundle(&work, &[ANY, ON], "both.bc")?;
    bundle(&work, &[ANY], "any.bc")?;
    bundle(&work, &[ON, OFF], "fixed.bc")?;
    let plain = std::fs::read(work.path().join("both.bc"))?;
    work.file(
        "packed.bc",
        offload_formats::compressed::compress(
            &plain,
            offload_formats::compressed::Options::default(),
        )?,
    );
    for (members, found) in [
        (&["any.bc", "both.bc"][..], "both.bc of lib.a"),
        (&["packed.bc"], "packed.bc of lib.a"),
        (&["any.bc", "fixed.bc"], "any.bc and fixed.bc of lib.a"),
    ] {
        let _ = std::fs::remove_file(work.path().join("lib.a"));
        archive(&work, "rcs", "lib.a", members)?;
        let line = format!("-type=a -unbundle -input=lib.a -targets={ON} -output=out");
        let checked = format!("{line} -check-input-archive");
        let told = refused(
            &work,
            &mut bundler(&work, our_tool(), &words(&checked)),
            &["out"],
        )?;
        let text = format!("conflicting TargetIDs [{ANY}, {ON}] found in {found}");
        expect_in(&told, &text)?;
        if members.len() == 2 && members[1] == "both.bc" {
            expect_in(
                &refused(
                    &work,
                    &mut bundler(&work, theirs(), &words(&checked)),
                    &["out"],
                )?,
                &text,
            )?;
        } else {
            // LLVM's looks neither into what is compressed nor at two members.
            by_theirs(&work, &checked)?;
        }
        by_ours(&work, &line)?;
        std::fs::remove_file(work.path().join("out"))?;
    }
    std::fs::remove_file(work.path().join("lib.a"))?;
    std::fs::copy(work.path().join("fixed.bc"), work.path().join("again.bc"))?;
    archive(&work, "rcs", "lib.a", &["fixed.bc", "again.bc"])?;
    by_ours(
        &work,
        &format!("-type=a -unbundle -input=lib.a -targets={ON} -output=out -check-input-archive"),
    )?;
    passed()
}

/// As LLVM 24's parser of target ids has it: a generic processor is a processor like others, under
/// its name and in the triple.
fn generic_targets() -> Outcome {
    let work = Work::new();
    let of = |triple: &str, id: &str| format!("hip-{triple}-amd-amdhsa--{id}");
    for (first, second, is_conflict) in [
        (
            of("amdgcn", "gfx9-generic"),
            of("amdgcn", "gfx9-generic:xnack+"),
            true,
        ),
        (
            of("amdgpu9", "gfx9-generic"),
            of("amdgpu9", "gfx9-generic:xnack-"),
            true,
        ),
        (
            of("amdgcn", "gfx90a:xnack+"),
            of("amdgpu9.0a", "gfx90a"),
            true,
        ),
        (
            of("amdgcn", "gfx9-generic:xnack-"),
            of("amdgcn", "gfx9-generic:xnack+"),
            false,
        ),
        (
            of("amdgcn", "gfx9-generic"),
            of("amdgcn", "gfx900:xnack+"),
            false,
        ),
        (
            of("amdgcn", "gfx12-5-generic"),
            of("amdgcn", "gfx1250"),
            false,
        ),
    ] {
        bundle(&work, &[&first, &second], "both.bc")?;
        let _ = std::fs::remove_file(work.path().join("lib.a"));
        archive(&work, "rcs", "lib.a", &["both.bc"])?;
        let line = format!(
            "-type=a -unbundle -input=lib.a -targets={second} -output=out -check-input-archive"
        );
        if is_conflict {
            let told = refused(
                &work,
                &mut bundler(&work, our_tool(), &words(&line)),
                &["out"],
            )?;
            expect_in(
                &told,
                &format!("conflicting TargetIDs [{first}, {second}] found in both.bc of lib.a"),
            )?;
        } else {
            by_ours(&work, &line)?;
            std::fs::remove_file(work.path().join("out"))?;
        }
    }
    passed()
}
