//! Libraries and wheels of PyPI and Debian, downloaded by `make test-files`. After `split` and
//! `merge`, also with kpack archives, they equal the originals. In pruned ones, the vendors' own tools find exactly the
//! remaining images.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use libtest_mimic::{Completion, Failed, Trial};

use super::{images, same, stdout_of};
use crate::support::{
    Outcome, Work, cuda_tools, ensure, expect_equal, expect_in, llvm, missing, offld, output,
    passed, run, test, text,
};

/// The message for a file with recompressed streams.
const ANEW: &str = "cannot be reproduced byte for byte";
/// A test of one file.
type Test = Box<dyn FnOnce(&Work, &Path) -> Outcome + Send>;

struct Library {
    name: &'static str,
    /// The device whose images remain.
    keep: &'static str,
    /// Whether some of its containers have no image for that device.
    empties: bool,
}

const CUDA: [Library; 7] = [
    Library {
        name: "libcurand.so",
        keep: "sm_121",
        empties: false,
    },
    Library {
        name: "libcusparse.so",
        keep: "sm_90",
        empties: true,
    },
    Library {
        name: "libnccl.so",
        keep: "sm_90",
        empties: false,
    },
    Library {
        name: "libnvjpeg.so",
        keep: "sm_121",
        empties: false,
    },
    Library {
        name: "cub-cuda.so",
        keep: "sm_90",
        empties: false,
    },
    Library {
        name: "libfaiss.so",
        keep: "sm_80",
        empties: false,
    },
    Library {
        name: "libbitsandbytes_cuda128.so",
        keep: "sm_120",
        empties: false,
    },
];
const HIP: [Library; 5] = [
    Library {
        name: "librocrand.so",
        keep: "gfx90a",
        empties: false,
    },
    Library {
        name: "librocsparse.so",
        keep: "gfx90a",
        empties: false,
    },
    Library {
        name: "cub-rocm.so",
        keep: "gfx908",
        empties: false,
    },
    Library {
        name: "thrust-rocm.so",
        keep: "gfx1010",
        empties: false,
    },
    Library {
        name: "libbitsandbytes_rocm715.so",
        keep: "gfx942",
        empties: false,
    },
];
const WHEELS: [&str; 2] = [
    "nvidia_nvjpeg_cu12-12.4.0.76-py3-none-any.whl",
    "bitsandbytes-0.50.2-py3-none-any.whl",
];

pub(super) fn trials() -> Vec<Trial> {
    let Some(folder) = std::env::var_os("OFFLD_TEST_FILES").map(PathBuf::from) else {
        let reason = "files of PyPI and Debian are not here (make test-files, or test-long)";
        return vec![test("edit::real_files", move || {
            Ok(Completion::ignored_with(reason))
        })];
    };
    let mut trials = Vec::new();
    let mut add = |name: &str, what: &str, run: Test| {
        let path = folder.join(name);
        trials.push(test(
            format!("edit::real_files::{name}::{what}"),
            move || with_file(&path, run),
        ));
    };
    for library in CUDA {
        add(library.name, "comes_back", Box::new(comes_back));
        add(
            library.name,
            "pruned",
            Box::new(move |work, path| pruned_cuda(work, path, &library)),
        );
    }
    for library in HIP {
        add(library.name, "comes_back", Box::new(comes_back));
        add(library.name, "in_archives", Box::new(in_archives));
        add(
            library.name,
            "pruned",
            Box::new(move |work, path| pruned_hip(work, path, &library)),
        );
    }
    for wheel in WHEELS {
        add(wheel, "comes_back", Box::new(comes_back));
    }
    add(WHEELS[1], "in_archives", Box::new(in_archives));
    trials
}

/// Runs a test of a file if it was downloaded. The test's directory is next to the file, because
/// other file systems may be too small.
fn with_file(path: &Path, run: Test) -> Outcome {
    let Some(folder) = path.parent().filter(|_| path.is_file()) else {
        return missing(path.display());
    };
    run(&Work::within(folder), path)
}

/// Splits the file and merges the parts to `back`. Returns the messages.
fn there_and_back(work: &Work, path: &str, words: &[&str]) -> Result<String, Failed> {
    let stdout = stdout_of(
        work,
        ["split", path, "-d", "parts"].iter().chain(words).copied(),
    )?;
    let parts = std::fs::read_dir(work.path().join("parts"))?
        .map(|entry| Ok(entry?.path().to_string_lossy().into_owned()))
        .collect::<Result<Vec<_>, std::io::Error>>()?;
    match &parts[..] {
        // If offld could not take out any image, the only part is the file itself.
        [whole] if words.contains(&"--keep-original") => {
            std::fs::rename(whole, work.path().join("back"))?
        }
        parts => {
            ensure(parts.len() > 2, || format!("{} parts", parts.len()))?;
            stdout_of(
                work,
                ["merge", "-o", "back"]
                    .into_iter()
                    .chain(parts.iter().map(String::as_str)),
            )?;
        }
    }
    std::fs::remove_dir_all(work.path().join("parts"))?;
    Ok(stdout)
}

fn comes_back(work: &Work, path: &Path) -> Outcome {
    let old = path.to_string_lossy();
    let messages = there_and_back(work, &old, &[])?;
    if !messages.contains(ANEW) {
        same(path, &work.path().join("back"))?;
        return passed();
    }
    // For streams with several devices, only the contents are equal.
    expect_equal(
        "images",
        &images(work, &old)?.join("\n"),
        &images(work, "back")?.join("\n"),
    )?;
    if old.ends_with(".whl") {
        expect_same_members(work, &old)?;
    } else {
        expect_equal(
            "images",
            &extracted_hip(work, path, "")?,
            &extracted_hip(work, &work.path().join("back"), "")?,
        )?;
    }
    there_and_back(work, &old, &["--keep-original"])?;
    same(path, &work.path().join("back"))?;
    passed()
}

/// The last line of `offld check` of the library at `path`.
fn verdict(work: &Work, device: &str, path: &str) -> Result<String, Failed> {
    let mut check = work.command(offld());
    let ended = output(check.args(["check", "--for", device, path]))?;
    let answers = text(&ended.stdout);
    let last = answers.lines().last().ok_or("no answer")?;
    Ok(last.to_owned())
}

/// Moves the HIP code into kpack archives, and back.
fn in_archives(work: &Work, path: &Path) -> Outcome {
    let old = path.to_string_lossy();
    let told = stdout_of(work, ["split", "--kpack", &old, "-d", "parts"])?;
    expect_in(&told, "code objects")?;
    let name = path.file_name().ok_or("a name")?.to_string_lossy();
    let new = format!("parts/{name}");
    // The archives of a wheel are in other wheels.
    if !old.ends_with(".whl") {
        for device in ["gfx900", "gfx90a", "gfx90a:xnack+", "gfx1030"] {
            let answer = |path: &str| verdict(work, device, path);
            expect_equal(device, &answer(&old)?, &answer(&new)?)?;
        }
    }
    stdout_of(work, ["merge", &new, "-o", "back"])?;
    same(path, &work.path().join("back"))?;
    passed()
}

/// The members of the wheel `back` equal those of `old`, except for recompressed data. The list of
/// digests is correct.
fn expect_same_members(work: &Work, old: &str) -> Result<(), Failed> {
    work.file(
        "check.py",
        "import base64, csv, hashlib, io, sys, zipfile\n\
         old, new = (zipfile.ZipFile(path) for path in sys.argv[1:])\n\
         assert new.testzip() is None and old.namelist() == new.namelist()\n\
         for name in old.namelist():\n\
         \x20   if name.endswith('/RECORD'):\n\
         \x20       for path, digest, size in csv.reader(io.StringIO(new.read(name).decode())):\n\
         \x20           if digest:\n\
         \x20               data = new.read(path)\n\
         \x20               own = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()\n\
         \x20               assert digest == 'sha256=' + own and len(data) == int(size), path\n\
         \x20   elif old.read(name) != new.read(name):\n\
         \x20       print(name)\n",
    );
    let changed = run(work.command("python3").args(["check.py", old, "back"]))?;
    // Only ROCm libraries have streams with several devices.
    match changed.lines().find(|name| !name.contains("_rocm")) {
        Some(name) => Err(format!("{name} came back as another file").into()),
        None => Ok(()),
    }
}

/// Prunes the library to `new`.
fn prune(work: &Work, path: &str, library: &Library) -> Result<(), Failed> {
    let words = ["prune", "--keep", library.keep, path, "-o", "new"];
    let stdout = stdout_of(
        work,
        words
            .into_iter()
            .chain(library.empties.then_some("--allow-empty")),
    )?;
    expect_in(&stdout, "images dropped")
}

fn pruned_cuda(work: &Work, path: &Path, library: &Library) -> Outcome {
    let Some(tools) = cuda_tools(22) else {
        return missing("cuobjdump (make setup-cuda)");
    };
    prune(work, &path.to_string_lossy(), library)?;
    let extracted = |file: &Path, images: &str| {
        let folder = work.path().join("extracted");
        std::fs::create_dir(&folder)?;
        std::os::unix::fs::symlink(file, folder.join("library"))?;
        let mut command = work.command(tools.join("bin/cuobjdump"));
        run(command
            .current_dir(&folder)
            .args(["-all", "-xelf", images, "-xptx", images, "library"]))?;
        // The names look like `library.7.sm_90.cubin`.
        digests(&folder, |name| {
            name.split_once('.')?
                .1
                .split_once('.')
                .map(|(_, rest)| rest.to_owned())
        })
    };
    let expected = extracted(path, &format!(".{}.", library.keep))?;
    expect_in(&expected, library.keep)?;
    expect_equal(
        "images",
        &expected,
        &extracted(&work.path().join("new"), "all")?,
    )?;
    passed()
}

fn pruned_hip(work: &Work, path: &Path, library: &Library) -> Outcome {
    prune(work, &path.to_string_lossy(), library)?;
    let old = images(work, &path.to_string_lossy())?;
    let changed = images(work, "new")?
        .into_iter()
        .find(|image| !old.contains(image));
    ensure(changed.is_none(), || {
        format!("an image that was not in it: {changed:?}")
    })?;
    let expected = extracted_hip(work, path, library.keep)?;
    expect_in(&expected, library.keep)?;
    expect_equal(
        "images",
        &expected,
        &extracted_hip(work, &work.path().join("new"), "")?,
    )?;
    passed()
}

/// The names and digests of the code objects that llvm-objdump extracts from the file, for `device`
/// or for all devices.
fn extracted_hip(work: &Work, file: &Path, device: &str) -> Result<String, Failed> {
    let folder = work.path().join("extracted");
    std::fs::create_dir(&folder)?;
    std::os::unix::fs::symlink(file, folder.join("library"))?;
    run(work
        .command(llvm("llvm-objdump"))
        .current_dir(&folder)
        .args(["--offloading", "library"]))?;
    // The names look like `library.0.hipv4-amdgcn-amd-amdhsa--gfx90a:xnack+`.
    digests(&folder, |name| {
        let (_, target) = name.split_once("--")?;
        let is_it =
            device.is_empty() || target == device || target.strip_prefix(device)?.starts_with(':');
        is_it.then(|| target.to_owned())
    })
}

/// The sorted digests of the files in the directory, each after the text that `shown` makes from
/// its name. Removes the directory. A file that does not start like an image is represented by its
/// size. llvm-objdump reads the table of a compressed bundle, but cuts the images out of the
/// compressed bytes.
fn digests(folder: &Path, shown: impl Fn(&str) -> Option<String>) -> Result<String, Failed> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let Some(name) = path
            .file_name()
            .and_then(|name| shown(&name.to_string_lossy()))
        else {
            continue;
        };
        let mut start = [0; 4];
        let _ = std::fs::File::open(&path)?.read_exact(&mut start);
        if name.ends_with(".ptx") || start == *b"\x7fELF" {
            let stdout = run(std::process::Command::new("sha256sum").arg("-z").arg(&path))?;
            all.push(format!(
                "{name} {}",
                stdout.split(' ').next().unwrap_or_default()
            ));
        } else {
            all.push(format!("{name} {} bytes", std::fs::metadata(&path)?.len()));
        }
    }
    std::fs::remove_dir_all(folder)?;
    all.sort();
    Ok(all.join("\n"))
}
