//! Substitutes for real tools in links: fat objects for any target, and stand-ins for the device
//! compiler and the host linker that record their arguments. LLVM's wrapper can use the same
//! stand-ins.

use std::path::{Path, PathBuf};
use std::process::Command;

use libtest_mimic::Failed;

use super::support::{LLVM, Work, llvm, made};

/// A device image for a host object.
#[derive(Clone, Copy)]
pub(crate) struct Image<'a> {
    /// The device's triple.
    pub triple: &'a str,
    /// The architecture or target id.
    pub arch: &'a str,
    /// `openmp`, `cuda`, `hip` or `sycl`.
    pub kind: &'a str,
    /// The bytes.
    pub bytes: &'a [u8],
}

/// The triple of AMD GPUs.
pub(crate) const AMD: &str = "amdgcn-amd-amdhsa";
/// The triple of NVIDIA GPUs.
pub(crate) const NVIDIA: &str = "nvptx64-nvidia-cuda";
/// The triple of the CPU as device.
pub(crate) const HOST: &str = "x86_64-pc-linux-gnu";

impl<'a> Image<'a> {
    /// OpenMP code for an AMD GPU.
    pub(crate) fn amd(arch: &'a str, bytes: &'a str) -> Image<'a> {
        Image {
            triple: AMD,
            arch,
            kind: "openmp",
            bytes: bytes.as_bytes(),
        }
    }

    /// HIP code.
    pub(crate) fn hip(arch: &'a str, bytes: &'a [u8]) -> Image<'a> {
        Image {
            triple: AMD,
            arch,
            kind: "hip",
            bytes,
        }
    }

    /// CUDA code.
    pub(crate) fn cuda(arch: &'a str, bytes: &'a [u8]) -> Image<'a> {
        Image {
            triple: NVIDIA,
            arch,
            kind: "cuda",
            bytes,
        }
    }

    /// One image for HIP, one for CUDA, and an empty one for OpenMP.
    pub(crate) fn of_each_kind() -> [Image<'static>; 3] {
        let empty = Image {
            triple: HOST,
            arch: "",
            kind: "openmp",
            bytes: b"",
        };
        [
            Image::hip("gfx90a:xnack+", b"AMD"),
            Image::cuda("sm_80", b"NVIDIA"),
            empty,
        ]
    }

    /// OpenMP code for the CPU as device.
    pub(crate) fn host(bytes: &'a str) -> Image<'a> {
        Image {
            triple: HOST,
            arch: "generic",
            kind: "openmp",
            bytes: bytes.as_bytes(),
        }
    }
}

/// The stand-in for the device compiler: writes its arguments to `device/<name of its output>`, and
/// an image that is the concatenation of its inputs.
const DEVICE: &str = r#"#!/bin/sh
[ "$1" = -dumpversion ] && { echo 22.1.8; exit; }
args=$(printf '%s\n' "$@")
mkdir -p device images
inputs=
while [ $# -gt 0 ]; do
  case $1 in
    -o) out=$2; shift ;;
    -Xlinker|-dumpdir) shift ;;
    -*) ;;
    *.o) inputs="$inputs $1" ;;
  esac
  shift
done
printf '%s\n' "$args" > "device/${out##*/}"
cat $inputs > "$out"
cp "$out" images
"#;

/// The start of a stand-in for the device compiler: fails for `-###`, and sets `out` to the output
/// and `cpu` to the architecture.
macro_rules! reads_its_line {
    () => {
        r#"#!/bin/sh
[ "$1" = -dumpversion ] && { echo 22.1.8; exit; }
case " $* " in *" -### "*) exit 1 ;; esac
for word; do
  case $last in -o) out=$word ;; esac
  case $word in -mcpu=*) cpu=${word#-mcpu=} ;; esac
  last=$word
done
"#
    };
}
pub(crate) use reads_its_line;

/// A device compiler that writes a sparse file: a text at its start, zeros up to SIZE bytes, and
/// four bytes at its end.
pub(crate) const HOLES: &str = concat!(
    reads_its_line!(),
    r#"printf 'first of %s' "$cpu" > "$out"
truncate -s SIZE "$out"
printf 'last' >> "$out"
"#
);

/// The stand-in for the host linker: writes its arguments to `host-line`, and copies the objects
/// that the wrapper added to `made`.
const LINKER: &str = r#"#!/bin/sh
printf '%s\n' "$@" > host-line
mkdir -p made
for word; do
  case $word in
    *.openmp.image*.o) cp "$word" made ;;
  esac
done
"#;

impl Work {
    /// A host object with embedded device images.
    pub(crate) fn fat(&self, name: &str, images: &[Image<'_>]) -> Result<PathBuf, Failed> {
        let stem: String = name
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
            .collect();
        self.fat_with(name, images, &format!("int {stem};\n"))
    }

    /// A host object of the C program `source` with embedded device images.
    pub(crate) fn fat_with(
        &self,
        name: &str,
        images: &[Image<'_>],
        source: &str,
    ) -> Result<PathBuf, Failed> {
        self.fat_for("x86_64-unknown-linux-gnu", name, images, source)
    }

    /// The same for any host.
    pub(crate) fn fat_for(
        &self,
        host: &str,
        name: &str,
        images: &[Image<'_>],
        source: &str,
    ) -> Result<PathBuf, Failed> {
        let source = self.file(&format!("{name}.c"), source);
        let object = self.path().join(name);
        let mut compile = self.command(llvm("clang"));
        compile
            .arg(format!("--target={host}"))
            .arg("-c")
            .arg(source)
            .arg("-o")
            .arg(&object);
        if !images.is_empty() {
            let packed = self.pack(&format!("{name}.pack"), images)?;
            compile
                .arg("-Xclang")
                .arg(format!("-fembed-offload-object={}", packed.display()));
        }
        super::support::run(&mut compile)?;
        Ok(object)
    }

    /// An OffloadBinary of these images.
    pub(crate) fn pack(&self, name: &str, images: &[Image<'_>]) -> Result<PathBuf, Failed> {
        let packed = self.path().join(name);
        let mut pack = self.command(llvm("llvm-offload-binary"));
        pack.arg("-o").arg(&packed);
        for (
            index,
            Image {
                triple,
                arch,
                kind,
                bytes,
            },
        ) in images.iter().enumerate()
        {
            let file = self.file(&format!("{name}.{index}.o"), bytes);
            pack.arg(format!(
                "--image=file={},triple={triple},arch={arch},kind={kind}",
                file.display()
            ));
        }
        super::support::run(&mut pack)?;
        Ok(packed)
    }

    /// An archive of files in this directory.
    pub(crate) fn archive(&self, name: &str, members: &[&str]) -> Result<PathBuf, Failed> {
        self.run(llvm("llvm-ar"), [&["rcs", name], members].concat())?;
        Ok(self.path().join(name))
    }

    /// A script in this directory.
    pub(crate) fn tool(&self, name: &str, script: &str) -> PathBuf {
        // Another process writes the script. A child process of another test could inherit a file
        // that is open for writing here, and then the script could not start (ETXTBSY).
        let text = self.file(&format!("{name}.text"), script);
        let path = self.path().join(name);
        let mut install = Command::new("install");
        let status = install.args(["-m", "755"]).args([&text, &path]).status();
        assert!(status.is_ok_and(|status| status.success()), "{name}");
        std::fs::remove_file(text).expect("the text exists");
        path
    }

    /// offld as clang's wrapper, with the stand-ins and `arguments`.
    pub(crate) fn wrapper<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Command {
        let mut command = self.command(made().links.join("clang-linker-wrapper"));
        self.with_stand_ins(&mut command).args(arguments);
        command
    }

    /// LLVM's wrapper, with the stand-ins and `arguments`.
    pub(crate) fn reference<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Command {
        self.stand_ins();
        let mut command = self.command(self.reference_wrapper());
        self.with_stand_ins(&mut command)
            .args(arguments)
            .env("LD_LIBRARY_PATH", Path::new(LLVM).with_file_name("lib"));
        command
    }

    /// Creates the stand-ins for the device compiler and for the host linker.
    pub(crate) fn stand_ins(&self) -> [PathBuf; 2] {
        [("tools/clang", DEVICE), ("tools/linker", LINKER)]
            .map(|(name, script)| self.stand_in(name, script))
    }

    /// A copy of LLVM's wrapper next to the stand-ins: it looks for clang in its own directory,
    /// after resolving symlinks.
    pub(crate) fn reference_wrapper(&self) -> PathBuf {
        let wrapper = self.path().join("tools/clang-linker-wrapper");
        if !wrapper.exists() {
            std::fs::copy(llvm("clang-linker-wrapper"), &wrapper).expect("LLVM's wrapper");
        }
        wrapper
    }

    fn with_stand_ins<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        let [clang, linker] = self.stand_ins();
        let mut option = std::ffi::OsString::from("--linker-path=");
        option.push(linker);
        command
            .env("OFFLD_CLANG", clang)
            .arg("--host-triple=x86_64-unknown-linux-gnu")
            .arg(option)
    }

    /// Creates a stand-in, unless the test has created its own.
    fn stand_in(&self, name: &str, script: &str) -> PathBuf {
        let path = self.path().join(name);
        if path.exists() {
            path
        } else {
            self.tool(name, script)
        }
    }

    /// The arguments of the host linker.
    pub(crate) fn host_line(&self) -> Result<Vec<String>, Failed> {
        lines(&self.path().join("host-line"))
    }

    /// The arguments of each device link, by the name of its output.
    pub(crate) fn device_lines(&self) -> Result<Vec<(String, Vec<String>)>, Failed> {
        named_files(&self.path().join("device"))?
            .into_iter()
            .map(|(name, path)| Ok((name, lines(&path)?)))
            .collect()
    }

    /// The images that the stand-in wrote: names and contents.
    pub(crate) fn images(&self) -> Result<Vec<(String, String)>, Failed> {
        let files = named_files(&self.path().join("images"))?;
        files
            .into_iter()
            .map(|(name, path)| {
                Ok((
                    name,
                    String::from_utf8_lossy(&std::fs::read(path)?).into_owned(),
                ))
            })
            .collect()
    }

    /// The objects that were added to the host link, in order of their names: those with images
    /// precede those with registration code.
    pub(crate) fn made_objects(&self) -> Result<Vec<PathBuf>, Failed> {
        Ok(named_files(&self.path().join("made"))?
            .into_iter()
            .map(|(_, path)| path)
            .collect())
    }

    /// The only added object with registration code.
    pub(crate) fn registration_object(&self) -> Result<PathBuf, Failed> {
        let made = self.made_objects()?;
        let is_code = |path: &&PathBuf| path.to_string_lossy().contains(".image.wrapper");
        match made.iter().filter(is_code).collect::<Vec<_>>()[..] {
            [one] => Ok(one.clone()),
            _ => Err(format!("expected one object with registration code: {made:?}").into()),
        }
    }

    /// The only added object with images, which may also have the registration code.
    pub(crate) fn image_object(&self) -> Result<PathBuf, Failed> {
        match &self.made_objects()?[..] {
            [one] => Ok(one.clone()),
            [images, code] if code.to_string_lossy().contains(".image.wrapper") => {
                Ok(images.clone())
            }
            made => Err(format!("expected one object with images: {made:?}").into()),
        }
    }

    /// Removes the records of the stand-ins.
    pub(crate) fn forget(&self) {
        for name in ["device", "images", "made"] {
            let _ = std::fs::remove_dir_all(self.path().join(name));
        }
        let _ = std::fs::remove_file(self.path().join("host-line"));
    }
}

fn named_files(folder: &Path) -> Result<Vec<(String, PathBuf)>, Failed> {
    if !folder.exists() {
        return Ok(Vec::new());
    }
    let mut all: Vec<(String, PathBuf)> = std::fs::read_dir(folder)?
        .map(|entry| {
            entry.map(|entry| {
                (
                    entry.file_name().to_string_lossy().into_owned(),
                    entry.path(),
                )
            })
        })
        .collect::<Result<_, _>>()?;
    all.sort();
    Ok(all)
}

fn lines(file: &Path) -> Result<Vec<String>, Failed> {
    let text =
        std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    Ok(text.lines().map(str::to_owned).collect())
}
