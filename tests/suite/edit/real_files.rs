//! Libraries and wheels as PyPI and Debian have them, which `make test-files` brings: taken apart and put together they are what they
//! were, and of a pruned one the vendors' own tools read exactly the images that stay.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use libtest_mimic::{Completion, Failed, Trial};

use super::{images, said, same};
use crate::support::{Outcome, Work, cuda_tools, ensure, expect_equal, expect_in, llvm, missing, passed, run, test};

/// What is said of a file whose streams were compressed anew.
const ANEW: &str = "cannot be made again as they were";
/// A test of a file.
type Test = Box<dyn FnOnce(&Work, &Path) -> Outcome + Send>;

/// What of a library stays.
struct Library {
    name: &'static str,
    /// The device whose images stay.
    keep: &'static str,
    /// Whether some of its containers have no image for that device.
    empties: bool,
}

const CUDA: [Library; 7] = [
    Library { name: "libcurand.so", keep: "sm_121", empties: false },
    Library { name: "libcusparse.so", keep: "sm_90", empties: true },
    Library { name: "libnccl.so", keep: "sm_90", empties: false },
    Library { name: "libnvjpeg.so", keep: "sm_121", empties: false },
    Library { name: "cub-cuda.so", keep: "sm_90", empties: false },
    Library { name: "libfaiss.so", keep: "sm_80", empties: false },
    Library { name: "libbitsandbytes_cuda128.so", keep: "sm_120", empties: false },
];
const HIP: [Library; 5] = [
    Library { name: "librocrand.so", keep: "gfx90a", empties: false },
    Library { name: "librocsparse.so", keep: "gfx90a", empties: false },
    Library { name: "cub-rocm.so", keep: "gfx908", empties: false },
    Library { name: "thrust-rocm.so", keep: "gfx1010", empties: false },
    Library { name: "libbitsandbytes_rocm715.so", keep: "gfx942", empties: false },
];
const WHEELS: [&str; 2] = ["nvidia_nvjpeg_cu12-12.4.0.76-py3-none-any.whl", "bitsandbytes-0.50.2-py3-none-any.whl"];

pub(super) fn trials() -> Vec<Trial> {
    let Some(folder) = std::env::var_os("OFFLD_TEST_FILES").map(PathBuf::from) else {
        let told = "files of PyPI and Debian are not here (make test-files, or test-long)";
        return vec![test("edit::real_files", move || Ok(Completion::ignored_with(told)))];
    };
    let mut trials = Vec::new();
    let mut add = |name: &str, what: &str, run: Test| {
        let path = folder.join(name);
        trials.push(test(format!("edit::real_files::{name}::{what}"), move || with_file(&path, run)));
    };
    for library in CUDA {
        add(library.name, "comes_back", Box::new(comes_back));
        add(library.name, "pruned", Box::new(move |work, path| pruned_cuda(work, path, &library)));
    }
    for library in HIP {
        add(library.name, "comes_back", Box::new(comes_back));
        add(library.name, "pruned", Box::new(move |work, path| pruned_hip(work, path, &library)));
    }
    for wheel in WHEELS {
        add(wheel, "comes_back", Box::new(comes_back));
    }
    trials
}

/// Runs a test of a file that could perhaps not be downloaded, in a folder beside it: others may be too small.
fn with_file(path: &Path, run: Test) -> Outcome {
    let Some(folder) = path.parent().filter(|_| path.is_file()) else { return missing(path.display()) };
    run(&Work::within(folder), path)
}

/// Takes the file apart and puts it together, to `back`; what was said.
fn there_and_back(work: &Work, path: &str, words: &[&str]) -> Result<String, Failed> {
    let told = said(work, ["split", path, "-d", "parts"].iter().chain(words).copied())?;
    let parts = std::fs::read_dir(work.path().join("parts"))?
        .map(|entry| Ok(entry?.path().to_string_lossy().into_owned()))
        .collect::<Result<Vec<_>, std::io::Error>>()?;
    match &parts[..] {
        // Where nothing could be taken out, it is the file itself.
        [whole] if words.contains(&"--keep-original") => std::fs::rename(whole, work.path().join("back"))?,
        parts => {
            ensure(parts.len() > 2, || format!("{} parts", parts.len()))?;
            said(work, ["merge", "-o", "back"].into_iter().chain(parts.iter().map(String::as_str)))?;
        }
    }
    std::fs::remove_dir_all(work.path().join("parts"))?;
    Ok(told)
}

fn comes_back(work: &Work, path: &Path) -> Outcome {
    let old = path.to_string_lossy();
    let told = there_and_back(work, &old, &[])?;
    if !told.contains(ANEW) {
        same(path, &work.path().join("back"))?;
        return passed();
    }
    // Streams that several devices share: their contents are the same.
    expect_equal("images", &images(work, &old)?.join("\n"), &images(work, "back")?.join("\n"))?;
    if old.ends_with(".whl") {
        expect_same_members(work, &old)?;
    } else {
        expect_equal("images", &extracted_hip(work, path, "")?, &extracted_hip(work, &work.path().join("back"), "")?)?;
    }
    there_and_back(work, &old, &["--keep-original"])?;
    same(path, &work.path().join("back"))?;
    passed()
}

/// Members of the wheel `back` are those of `old`, but for what in them is compressed anew; its list of digests is right.
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
    // Only ROCm's libraries have streams that several devices share.
    match changed.lines().find(|name| !name.contains("_rocm")) {
        Some(name) => Err(format!("{name} came back as another file").into()),
        None => Ok(()),
    }
}

/// What the library is after pruning, at `new`.
fn prune(work: &Work, path: &str, library: &Library) -> Result<(), Failed> {
    let words = ["prune", "--keep", library.keep, path, "-o", "new"];
    let told = said(work, words.into_iter().chain(library.empties.then_some("--allow-empty")))?;
    expect_in(&told, "images dropped")
}

fn pruned_cuda(work: &Work, path: &Path, library: &Library) -> Outcome {
    let Some(tools) = cuda_tools(22) else { return missing("cuobjdump (make setup-cuda)") };
    prune(work, &path.to_string_lossy(), library)?;
    let extracted = |file: &Path, images: &str| {
        let folder = work.path().join("extracted");
        std::fs::create_dir(&folder)?;
        std::os::unix::fs::symlink(file, folder.join("library"))?;
        let mut command = work.command(tools.join("bin/cuobjdump"));
        run(command.current_dir(&folder).args(["-all", "-xelf", images, "-xptx", images, "library"]))?;
        // Named `library.7.sm_90.cubin`.
        digests(&folder, |name| name.split_once('.')?.1.split_once('.').map(|(_, rest)| rest.to_owned()))
    };
    let expected = extracted(path, &format!(".{}.", library.keep))?;
    expect_in(&expected, library.keep)?;
    expect_equal("images", &expected, &extracted(&work.path().join("new"), "all")?)?;
    passed()
}

fn pruned_hip(work: &Work, path: &Path, library: &Library) -> Outcome {
    prune(work, &path.to_string_lossy(), library)?;
    let old = images(work, &path.to_string_lossy())?;
    let changed = images(work, "new")?.into_iter().find(|image| !old.contains(image));
    ensure(changed.is_none(), || format!("an image that was not in it: {changed:?}"))?;
    let expected = extracted_hip(work, path, library.keep)?;
    expect_in(&expected, library.keep)?;
    expect_equal("images", &expected, &extracted_hip(work, &work.path().join("new"), "")?)?;
    passed()
}

/// The names and digests of the code objects that llvm-objdump reads in the file for `device`, or for all.
fn extracted_hip(work: &Work, file: &Path, device: &str) -> Result<String, Failed> {
    let folder = work.path().join("extracted");
    std::fs::create_dir(&folder)?;
    std::os::unix::fs::symlink(file, folder.join("library"))?;
    run(work.command(llvm("llvm-objdump")).current_dir(&folder).args(["--offloading", "library"]))?;
    // Named `library.0.hipv4-amdgcn-amd-amdhsa--gfx90a:xnack+`.
    digests(&folder, |name| {
        let (_, target) = name.split_once("--")?;
        let is_it = device.is_empty() || target == device || target.strip_prefix(device)?.starts_with(':');
        is_it.then(|| target.to_owned())
    })
}

/// The digest of each file in the folder after what `shown` makes of its name, sorted; the folder goes. What begins like no image is told
/// by its size: llvm-objdump knows the images of compressed bundles, and cuts them out of the bytes that are compressed.
fn digests(folder: &Path, shown: impl Fn(&str) -> Option<String>) -> Result<String, Failed> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let Some(name) = path.file_name().and_then(|name| shown(&name.to_string_lossy())) else { continue };
        let mut start = [0; 4];
        let _ = std::fs::File::open(&path)?.read_exact(&mut start);
        if name.ends_with(".ptx") || start == *b"\x7fELF" {
            let told = run(std::process::Command::new("sha256sum").arg("-z").arg(&path))?;
            all.push(format!("{name} {}", told.split(' ').next().unwrap_or_default()));
        } else {
            all.push(format!("{name} {} bytes", std::fs::metadata(&path)?.len()));
        }
    }
    std::fs::remove_dir_all(folder)?;
    all.sort();
    Ok(all.join("\n"))
}
