//! The ids that a command line gives (`-targets`), checked in LLVM's order and told in its words (containers spec 2.3).

use std::collections::BTreeSet;
use std::ffi::OsString;

use anyhow::{Result, bail};

use super::Task;
use crate::formats::bundle::{self, Id, IdFault, is_known_arch};

/// Reads the ids. All forms that any release of LLVM takes are taken, and no target id is lost (B1, B17).
pub(super) fn read(texts: &[OsString], task: Task) -> Result<Vec<Id>> {
    let mut seen = BTreeSet::new();
    let mut ids = Vec::with_capacity(texts.len());
    for text in texts {
        if !seen.insert(text) {
            bail!(IdFault::Duplicate);
        }
        ids.push(one(&text.to_string_lossy())?);
    }
    let fault = bundle::check(&ids);
    if let Err(fault @ IdFault::Conflict(..)) = &fault {
        bail!(fault.clone());
    }
    check_hosts(&ids, task)?;
    // LLVM looks at the texts alone and then writes a bundle that nobody can read (B4).
    fault?;
    Ok(ids)
}

fn one(text: &str) -> Result<Id> {
    let mut parts = text.splitn(6, '-');
    let kind = parts.next().unwrap_or_default();
    let triple: Vec<&str> = parts.take(4).collect();
    let arch = triple.first().copied().unwrap_or_default();
    if arch.is_empty() && triple.len() < 4 {
        bail!(
            "Targets need to follow the format '<offload kind>-<target triple>', where '<target triple>' follows the format \
             '<kind>-<arch>-<vendor>-<os>-<env>[-<target id>[:target features]]'."
        );
    }
    let mut faults = String::new();
    if !["host", "openmp", "hip", "hipv4"].contains(&kind) {
        faults.push_str(&format!(", unknown offloading kind '{kind}'"));
    }
    if !is_known_arch(arch) {
        faults.push_str(&format!(", unknown target triple '{}'", triple.join("-")));
    }
    if !faults.is_empty() {
        bail!("invalid target '{text}'{faults}");
    }
    Ok(Id::parse(text))
}

fn check_hosts(ids: &[Id], task: Task) -> Result<()> {
    let hosts = ids.iter().filter(|id| id.kind == "host").count();
    let fine = match task {
        Task::Bundle => hosts == 1 || ids.iter().all(is_hip),
        Task::Unbundle | Task::List => hosts <= 1,
    };
    if !fine {
        bail!("expecting exactly one host target but got {hosts}");
    }
    Ok(())
}

/// Which kinds may be without a host.
fn is_hip(id: &Id) -> bool {
    id.kind == "hip" || id.kind == "hipv4"
}
