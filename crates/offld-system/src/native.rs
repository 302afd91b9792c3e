//! Devices of this machine: AMD GPUs as the kernel driver lists them, NVIDIA GPUs as their driver
//! and `nvidia-smi` report them, and the CPU. All files are read below a root directory, which is
//! `/` except in tests.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::run::stdout_of;
use crate::environment::OFFLD_NATIVE_ROOT;

/// Root directory for the files that describe the devices: `/`, except in tests.
pub fn root() -> PathBuf {
    std::env::var_os(OFFLD_NATIVE_ROOT)
        .filter(|root| !root.is_empty())
        .map_or_else(|| "/".into(), PathBuf::from)
}

/// The devices of a machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Machine {
    /// Architectures of the AMD GPUs: `gfx90a`.
    pub amd: Vec<String>,
    /// Architectures of the NVIDIA GPUs: `sm_90`.
    pub nvidia: Vec<String>,
    /// Major version of NVIDIA's driver.
    pub driver: Option<u32>,
    /// Architecture of the CPU: `x86-64-v3`, or a triple for other CPUs.
    pub cpu: String,
}

impl Machine {
    /// Reads the devices from files below `root`.
    ///
    /// # Errors
    /// A file cannot be read, or the architectures of NVIDIA GPUs cannot be determined.
    pub fn read(root: &Path) -> Result<Machine> {
        Ok(Machine {
            amd: amd(root)?,
            nvidia: nvidia(root)?,
            driver: driver(root)?,
            cpu: cpu(),
        })
    }
}

/// Text of a file, or `None` if it does not exist.
fn text(path: &Path) -> Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read `{}`", path.display())),
    }
}

/// Entries of a directory, sorted by name. Empty if the directory does not exist.
fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let listed = match fs::read_dir(folder) {
        Ok(listed) => listed,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => {
            return Err(error).with_context(|| format!("cannot read `{}`", folder.display()));
        }
    };
    let mut all = Vec::new();
    for entry in listed {
        all.push(
            entry
                .with_context(|| format!("cannot read `{}`", folder.display()))?
                .path(),
        );
    }
    all.sort();
    Ok(all)
}

/// AMD GPUs. The driver (amdkfd) encodes the version 9.0.10 as 90010; 0 is a node without a GPU.
fn amd(root: &Path) -> Result<Vec<String>> {
    let mut all = Vec::new();
    for node in entries(&root.join("sys/class/kfd/kfd/topology/nodes"))? {
        let properties = text(&node.join("properties"))?.unwrap_or_default();
        let version = properties.lines().find_map(|line| {
            line.strip_prefix("gfx_target_version ")?
                .trim()
                .parse::<u32>()
                .ok()
        });
        if let Some(version) = version.filter(|version| *version > 0) {
            let processor = format!(
                "gfx{}{:x}{:x}",
                version / 10_000,
                version / 100 % 100,
                version % 100
            );
            if !all.contains(&processor) {
                all.push(processor);
            }
        }
    }
    Ok(all)
}

/// Major version of NVIDIA's driver: `NVRM version: NVIDIA UNIX x86_64 Kernel Module 570.124.06 …`.
fn driver(root: &Path) -> Result<Option<u32>> {
    let Some(text) = text(&root.join("proc/driver/nvidia/version"))? else {
        return Ok(None);
    };
    let line = text
        .lines()
        .find(|line| line.starts_with("NVRM version:"))
        .unwrap_or_default();
    let version = line
        .split_whitespace()
        .find(|word| word.contains('.') && word.starts_with(|c: char| c.is_ascii_digit()));
    Ok(version.and_then(|version| version.split('.').next()?.parse().ok()))
}

/// NVIDIA GPUs. Their number is in `/proc`, but only `nvidia-smi` reports their compute capability.
fn nvidia(root: &Path) -> Result<Vec<String>> {
    let count = entries(&root.join("proc/driver/nvidia/gpus"))?.len();
    if count == 0 {
        return Ok(Vec::new());
    }
    let program = if root == Path::new("/") {
        PathBuf::from("nvidia-smi")
    } else {
        root.join("usr/bin/nvidia-smi")
    };
    let Some(output) = stdout_of(
        &program,
        &["--query-gpu=compute_cap", "--format=csv,noheader"],
    ) else {
        bail!(
            "cannot identify the NVIDIA GPUs ({count}): `nvidia-smi --query-gpu=compute_cap` failed"
        );
    };
    let mut all: Vec<String> = Vec::new();
    for line in output
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
    {
        let number: String = line.chars().filter(|c| *c != '.').collect();
        if !line.contains('.') || number.parse::<u32>().is_err() {
            bail!("invalid compute capability from nvidia-smi: `{line}`");
        }
        let processor = format!("sm_{number}");
        if !all.contains(&processor) {
            all.push(processor);
        }
    }
    Ok(all)
}

/// The CPU as a level of the x86-64 psABI. Each level includes all instructions of the lower ones.
#[cfg(target_arch = "x86_64")]
fn cpu() -> String {
    use std::is_x86_feature_detected as has;
    let second = has!("cmpxchg16b")
        && has!("popcnt")
        && has!("sse3")
        && has!("ssse3")
        && has!("sse4.1")
        && has!("sse4.2");
    let third = has!("avx")
        && has!("avx2")
        && has!("bmi1")
        && has!("bmi2")
        && has!("f16c")
        && has!("fma")
        && has!("lzcnt")
        && has!("movbe");
    let fourth = has!("avx512f")
        && has!("avx512bw")
        && has!("avx512cd")
        && has!("avx512dq")
        && has!("avx512vl");
    let level = match (second, third, fourth) {
        (true, true, true) => 4,
        (true, true, false) => 3,
        (true, false, _) => 2,
        (false, ..) => 1,
    };
    format!("x86-64-v{level}")
}

#[cfg(not(target_arch = "x86_64"))]
fn cpu() -> String {
    format!("{}-linux-gnu", std::env::consts::ARCH)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn put(root: &Path, name: &str, contents: &str) {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, contents).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn reads_gpus_from_the_files_of_their_drivers() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let none = Machine::read(root).unwrap();
        assert_eq!(
            (none.amd, none.nvidia, none.driver),
            (Vec::new(), Vec::new(), None)
        );
        assert!(!none.cpu.is_empty());
        for (node, version) in [
            ("0", 0),
            ("1", 90_010),
            ("2", 90_010),
            ("3", 110_001),
            ("4", 90_402),
            ("5", 120_001),
        ] {
            let properties = format!(
                "cpu_cores_count 0\nsimd_count 304\ngfx_target_version {version}\nvendor_id 4098\n"
            );
            put(
                root,
                &format!("sys/class/kfd/kfd/topology/nodes/{node}/properties"),
                &properties,
            );
        }
        let version = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.124.06  Release Build\nGCC version:  gcc 12\n";
        put(root, "proc/driver/nvidia/version", version);
        put(
            root,
            "proc/driver/nvidia/gpus/0000:01:00.0/information",
            "Model: NVIDIA H200\n",
        );
        let unknown = Machine::read(root).unwrap_err().to_string();
        assert!(
            unknown.contains("the NVIDIA GPUs (1)") && unknown.contains("compute_cap"),
            "{unknown}"
        );
        put(
            root,
            "usr/bin/nvidia-smi",
            "#!/bin/sh\ntest \"$1\" = --query-gpu=compute_cap && printf '9.0\\n9.0\\n12.0\\n'\n",
        );
        let machine = Machine::read(root).unwrap();
        assert_eq!(
            machine.amd,
            ["gfx90a", "gfx1101", "gfx942", "gfx1201"].map(str::to_owned)
        );
        assert_eq!(
            (machine.nvidia, machine.driver),
            (vec!["sm_90".to_owned(), "sm_120".to_owned()], Some(570))
        );
        // A driver with an unknown version format still lists its GPUs.
        put(
            root,
            "proc/driver/nvidia/version",
            "a version of another form\n",
        );
        let machine = Machine::read(root).unwrap();
        assert_eq!((machine.nvidia.len(), machine.driver), (2, None));
        put(root, "usr/bin/nvidia-smi", "#!/bin/sh\necho '[N/A]'\n");
        assert!(
            Machine::read(root)
                .unwrap_err()
                .to_string()
                .contains("[N/A]")
        );
    }
}
