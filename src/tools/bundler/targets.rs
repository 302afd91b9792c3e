//! The target IDs of a command line (`-targets=`), with LLVM's checks in LLVM's order and LLVM's
//! messages (docs/spec/containers.md 2.3).

use std::collections::BTreeSet;
use std::ffi::OsString;

use anyhow::{Result, bail};

use super::Task;
use crate::formats::bundle::{self, Id, IdFault, is_known_arch};

/// Parses the IDs. Every form that an LLVM release accepts is valid, and no part is dropped: LLVM
/// drops target IDs with unknown processors (docs/spec/faults.md B1, B17).
pub(super) fn read(texts: &[OsString], task: Task) -> Result<Vec<Id>> {
    let mut seen = BTreeSet::new();
    let mut ids = Vec::with_capacity(texts.len());
    for text in texts {
        if !seen.insert(text) {
            bail!(IdFault::Duplicate);
        }
        ids.push(parse(&text.to_string_lossy())?);
    }
    let fault = bundle::check(&ids);
    if let Err(fault @ IdFault::Conflict(..)) = &fault {
        bail!(fault.clone());
    }
    check_hosts(&ids, task)?;
    // LLVM only compares the texts. It accepts two spellings of an ID and writes a bundle that no
    // reader accepts (docs/spec/faults.md B4).
    fault?;
    Ok(ids)
}

fn parse(text: &str) -> Result<Id> {
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
    let valid = match task {
        Task::Bundle => hosts == 1 || ids.iter().all(is_hip),
        Task::Unbundle | Task::List => hosts <= 1,
    };
    if !valid {
        bail!("expecting exactly one host target but got {hosts}");
    }
    Ok(())
}

/// HIP bundles need no host entry.
fn is_hip(id: &Id) -> bool {
    id.kind == "hip" || id.kind == "hipv4"
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: &str = "host-x86_64-unknown-linux-gnu";
    const GPU: &str = "hip-amdgcn-amd-amdhsa--gfx906";

    fn ids(texts: &[&str], task: Task) -> Result<Vec<String>, String> {
        let texts: Vec<OsString> = texts.iter().map(OsString::from).collect();
        let ids = read(&texts, task).map_err(|error| error.to_string())?;
        Ok(ids.iter().map(Id::to_string).collect())
    }

    #[test]
    fn b17_triples_of_any_length() {
        for (text, id) in [
            ("host-x86_64", "host-x86_64-unknown-unknown-unknown-"),
            (
                "host-x86_64-unknown-linux",
                "host-x86_64-unknown-linux-unknown-",
            ),
            ("hip-amdgcn-amd-amdhsa-gfx906", GPU),
        ] {
            assert_eq!(ids(&[text], Task::Unbundle), Ok(vec![id.to_owned()]));
        }
        for text in ["", "host", "host-"] {
            assert!(
                ids(&[text], Task::Unbundle)
                    .is_err_and(|error| error.starts_with("Targets need to follow the format"))
            );
        }
    }

    #[test]
    fn ob_27_one_host_unless_all_is_hip() {
        let other = "openmp-nvptx64-nvidia-cuda--sm_70";
        let hosts = |count| Err(format!("expecting exactly one host target but got {count}"));
        assert_eq!(
            ids(&[GPU, HOST, other], Task::Bundle).map(|ids| ids.len()),
            Ok(3)
        );
        assert_eq!(ids(&[GPU, other], Task::Bundle), hosts(0));
        assert_eq!(ids(&[GPU], Task::Bundle), Ok(vec![GPU.to_owned()]));
        assert_eq!(ids(&[other], Task::Unbundle).map(|ids| ids.len()), Ok(1));
        for task in [Task::Bundle, Task::Unbundle] {
            assert_eq!(
                ids(&[HOST, "host-aarch64-unknown-linux-gnu"], task),
                hosts(2)
            );
        }
    }

    #[test]
    fn b4_ob_34_the_same_in_other_words() {
        for texts in [
            [GPU, "hip-amdgcn-amd-amdhsa-unknown-gfx906"],
            [
                "hip-amdgcn-amd-amdhsa--fiji",
                "hip-amdgcn-amd-amdhsa--gfx803",
            ],
        ] {
            assert_eq!(
                ids(&texts, Task::Bundle),
                Err("Duplicate targets are not allowed".to_owned())
            );
        }
    }
}
