//! The loader itself, compiled for a directory that stands for the root of the file system: which
//! images it maps on which machine. Its LLVM IR in the repository is that of its source.

use std::fs;
use std::path::Path;

use libtest_mimic::{Failed, Trial};

use crate::support::{
    Outcome, Work, ensure, expect_equal, expect_in, missing, output, passed, root, run, test, text,
};
use offload_formats::external_images::{Devices, Digest, ExternalImage, Table};
use offload_formats::model::OffloadKind;

pub(super) fn trials() -> Vec<Trial> {
    vec![
        test(
            "external_images::devices::only_images_that_fit_are_mapped",
            fitting,
        ),
        test(
            "external_images::devices::missing_files_are_named_where_they_matter",
            absent,
        ),
        test(
            "external_images::devices::unloading_leaves_memory_of_others",
            unloading,
        ),
        test(
            "releases::external_images::devices::the_ir_is_that_of_the_source",
            current,
        ),
    ]
}

/// Calls the loader for the table in `argv[1]`, and prints the images that it returns.
const MAIN: &str = r#"
#include "loader.c"
int main(int argc, char **argv) {
  FILE *file = fopen(argv[1], "rb");
  static char storage[1 << 16] = {1};
  (void)argc;
  fread(storage, 1, sizeof storage, file);
  struct table *table = (struct table *)storage;
  struct device_image rows[16];
  int count = offld_external_openmp(table, rows);
  for (int i = 0; i < count; i++)
    printf("%.*s\n", (int)((char *)rows[i].end - (char *)rows[i].start), (char *)rows[i].start);
  offld_external_unload();
}
"#;

struct Loader {
    work: Work,
}

impl Loader {
    fn new(archs: &[&str]) -> Result<Loader, Failed> {
        Loader::of(MAIN, archs)
    }

    fn of(main: &str, archs: &[&str]) -> Result<Loader, Failed> {
        let work = Work::new();
        work.file("main.c", main);
        let machine = work.path().join("machine");
        fs::create_dir_all(machine.join("sys/class"))?;
        run(work
            .command("cc")
            .args([
                "-D_GNU_SOURCE",
                "-Wall",
                "-Wno-unused-result",
                "-O2",
                "main.c",
                "-o",
                "loader",
                "-I",
            ])
            .arg(root().join("src/bin/offld-llvm/external_images"))
            .arg(format!("-DROOT=\"{}\"", machine.display())))?;
        fs::create_dir(work.path().join("images"))?;
        let images = archs.iter().map(|arch| image(work.path(), arch));
        let table = Table {
            kind: OffloadKind::OpenMp,
            directory: "images".to_owned(),
            images: images.collect::<Result<_, Failed>>()?,
        };
        work.file("table", table.write().ok_or("no table")?);
        Ok(Loader { work })
    }

    /// The machine has AMD GPUs of these versions.
    fn with_gpus(&self, versions: &[u32]) -> Result<(), Failed> {
        let nodes = self
            .work
            .path()
            .join("machine/sys/class/kfd/kfd/topology/nodes");
        let _ = fs::remove_dir_all(&nodes);
        for (node, version) in [0].iter().chain(versions).enumerate() {
            let folder = nodes.join(node.to_string());
            fs::create_dir_all(&folder)?;
            let text = format!("cpu_cores_count 0\nsimd_count 8\ngfx_target_version {version}\n");
            fs::write(folder.join("properties"), text)?;
        }
        Ok(())
    }

    /// The images that the loader maps, and its messages.
    fn loaded(&self, variables: &[(&str, &str)]) -> Result<(String, String), Failed> {
        let mut command = self.work.command(self.work.path().join("loader"));
        command.arg("table").envs(variables.iter().copied());
        let ended = output(&mut command)?;
        ensure(ended.status.success(), || {
            crate::support::shown(&command, &ended)
        })?;
        Ok((text(&ended.stdout).replace('\n', " "), text(&ended.stderr)))
    }
}

/// Writes an image whose contents are its architecture.
fn image(folder: &Path, arch: &str) -> Result<ExternalImage, Failed> {
    use std::io::Write as _;
    let target = match arch {
        "x86_64" => offload_formats::target::Target::new("x86_64-pc-linux-gnu", ""),
        arch if arch.starts_with("sm_") => {
            offload_formats::target::Target::new("nvptx64-nvidia-cuda", arch)
        }
        arch => offload_formats::target::Target::new("amdgcn-amd-amdhsa", arch),
    };
    let mut digest = Digest::default();
    digest.write_all(arch.as_bytes())?;
    fs::write(folder.join("images").join(arch), arch)?;
    Ok(ExternalImage {
        name: arch.to_owned(),
        id: target.triple.clone(),
        arch: arch.to_owned(),
        size: arch.len() as u64,
        digest: digest.finish(),
        devices: Devices::of(&target, "x86_64"),
    })
}

const ALL: [&str; 6] = [
    "gfx90a:xnack-",
    "gfx90a:xnack+",
    "gfx942",
    "gfx9-4-generic",
    "sm_90",
    "x86_64",
];

fn fitting() -> Outcome {
    let loader = Loader::new(&ALL)?;
    let nothing: &[(&str, &str)] = &[];
    // No driver of AMD: no device. Those of NVIDIA cannot be known.
    expect_equal("no GPU", "sm_90 x86_64 ", &loader.loaded(nothing)?.0)?;
    loader.with_gpus(&[90010])?;
    let both = "gfx90a:xnack- gfx90a:xnack+ gfx9-4-generic sm_90 x86_64 ";
    expect_equal("gfx90a", both, &loader.loaded(nothing)?.0)?;
    loader.with_gpus(&[110_000])?;
    expect_equal("gfx1100", "sm_90 x86_64 ", &loader.loaded(nothing)?.0)?;
    loader.with_gpus(&[90402, 110_000])?;
    let one = "gfx942 gfx9-4-generic sm_90 x86_64 ";
    expect_equal("gfx942", one, &loader.loaded(nothing)?.0)?;
    // This variable makes the runtime take code for other devices.
    let all = format!("{} ", ALL.join(" "));
    for name in ["HSA_OVERRIDE_GFX_VERSION", "HSA_OVERRIDE_GFX_VERSION_1"] {
        let loaded = loader.loaded(&[(name, "9.0.10")])?;
        expect_equal(name, &all, &loaded.0)?;
        expect_equal("messages", "", &loaded.1)?;
    }
    // Windows has the driver; or nothing can be read.
    fs::remove_dir_all(loader.work.path().join("machine/sys/class/kfd"))?;
    fs::create_dir(loader.work.path().join("machine/dev"))?;
    fs::write(loader.work.path().join("machine/dev/dxg"), "")?;
    expect_equal("Windows", &all, &loader.loaded(nothing)?.0)?;
    fs::remove_dir_all(loader.work.path().join("machine"))?;
    expect_equal("nothing to read", &all, &loader.loaded(nothing)?.0)?;
    passed()
}

fn absent() -> Outcome {
    let loader = Loader::new(&ALL)?;
    let remove = |name: &str| fs::remove_file(loader.work.path().join("images").join(name));
    loader.with_gpus(&[90402])?;
    // The generic image serves the device.
    remove("gfx942")?;
    remove("gfx90a:xnack+")?;
    let loaded = loader.loaded(&[])?;
    expect_equal("images", "gfx9-4-generic sm_90 x86_64 ", &loaded.0)?;
    expect_equal("messages", "", &loaded.1)?;
    remove("gfx9-4-generic")?;
    let loaded = loader.loaded(&[])?;
    expect_equal("images", "sm_90 x86_64 ", &loaded.0)?;
    expect_in(&loaded.1, "cannot load the device code for gfx942: `")?;
    expect_in(&loaded.1, "/images/gfx942`: No such file or directory")?;
    // Another device does not need it.
    loader.with_gpus(&[110_000])?;
    expect_equal("messages", "", &loader.loaded(&[])?.1)?;
    // The package for AMD has no file for NVIDIA.
    remove("sm_90")?;
    expect_equal("messages", "", &loader.loaded(&[])?.1)?;
    remove("x86_64")?;
    let loaded = loader.loaded(&[])?;
    expect_equal("images", "", &loaded.0)?;
    expect_equal(
        "number of messages",
        "2",
        &loaded.1.lines().count().to_string(),
    )?;
    passed()
}

/// The images of CUDA are copied, and nothing else gets their address space until it is free.
const CUDA: &str = r#"
#include "loader.c"
int main(int argc, char **argv) {
  FILE *file = fopen(argv[1], "rb");
  static char storage[1 << 16] = {1};
  char *others[256];
  (void)argc;
  fread(storage, 1, sizeof storage, file);
  const struct fatbinary *made = offld_external_cuda((struct table *)storage);
  printf("%u\n", (unsigned)made->size);
  for (int i = 0; i < 256; i++)
    others[i] = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  offld_external_unload();
  for (int i = 0; i < 256; i++)
    *others[i] = 1;
}
"#;

fn unloading() -> Outcome {
    let loader = Loader::of(
        CUDA,
        &[
            "sm_80_with_a_name_longer_than_a_header",
            "sm_90_with_a_name_longer_than_a_header",
        ],
    )?;
    // Both without their headers.
    let size = 2 * ("sm_80_with_a_name_longer_than_a_header".len() - 16);
    let (printed, messages) = loader.loaded(&[])?;
    expect_equal("size", &format!("{size} "), &printed)?;
    expect_equal("messages", "", &messages)?;
    passed()
}

fn current() -> Outcome {
    if crate::support::Release::of(19).is_none() {
        return missing("LLVM 19 (make setup-releases)");
    }
    let work = Work::new();
    let made = output(&mut work.command(root().join("scripts/external-images.sh")))?;
    let kept = fs::read(root().join("src/bin/offld-llvm/external_images/loader.ll"))?;
    if made.stdout != kept {
        return Err(format!(
            "loader.ll is old: run scripts/external-images.sh\n{}",
            text(&made.stderr)
        )
        .into());
    }
    passed()
}
