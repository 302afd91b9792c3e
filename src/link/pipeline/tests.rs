//! Failures of each step of a link: the error names the failed step, no later step runs, and no
//! temporary file remains.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use std::time::Duration;

use anyhow::bail;

use super::*;
use crate::BUILD;
use crate::args::Role;
use offld_system::run::{Cmd, Run};
use offld_system::scratch::Scratch;
use offld_system::service::{Service, ServiceFailure};
use offld_system::shell::Shell;
use offld_system::signals::Signals;
use offld_system::signals::Usage;
use offld_system::threads::lock;
use offld_system::trace::Trace;
use offload_formats::error;
use offload_formats::model::ImageKind;
use offload_formats::offload_binary;
use offload_formats::registration::protocol::{Answer, Request};

/// The failure of a step.
#[derive(Clone, Copy)]
enum Fault {
    Error,
    /// The step succeeds but writes no output.
    NoOutput,
}

/// A runner whose step `at`, counted from 0, fails. Its other steps write their outputs.
struct FailsAt {
    at: usize,
    fault: Fault,
    calls: AtomicUsize,
    steps: Arc<Mutex<Vec<String>>>,
}

impl Run for FailsAt {
    fn run(&self, cmd: &Cmd) -> Result<Usage> {
        let objects = cmd
            .args
            .iter()
            .map(Path::new)
            .filter(|path| path.extension().is_some_and(|end| end == "o"));
        objects.for_each(|object| {
            assert!(
                object.is_file(),
                "{} is given {}",
                cmd.step,
                object.display()
            )
        });
        lock(&self.steps).push(cmd.step.clone());
        if self.calls.fetch_add(1, Ordering::SeqCst) != self.at {
            if let Some(output) = &cmd.output {
                std::fs::write(output, "image")?;
            }
            return Ok(Usage::default());
        }
        match self.fault {
            Fault::Error => bail!("{} failed: on purpose", cmd.step),
            Fault::NoOutput => Ok(Usage::default()),
        }
    }

    fn serve(&self, _cmd: &Cmd, _signals: &Arc<Signals>) -> Result<Box<dyn Service>> {
        Ok(Box::new(Objects(VecDeque::new())))
    }

    fn replace(&self, cmd: &Cmd) -> Result<()> {
        self.run(cmd).map(drop)
    }
}

/// Stands in for `offld-llvm`: every generated object has the same bytes.
struct Objects(VecDeque<Vec<u8>>);

impl Service for Objects {
    fn send(&mut self, request: &[u8]) -> std::result::Result<(), ServiceFailure> {
        self.0.push_back(request.to_vec());
        Ok(())
    }

    fn answer(&mut self, _limit: Duration) -> std::result::Result<Vec<u8>, ServiceFailure> {
        Ok(
            match Request::decode(&self.0.pop_front().unwrap()).unwrap() {
                Request::Hello => BUILD.as_bytes().to_vec(),
                _ => Answer::Done(&object()).encode(),
            },
        )
    }
}

/// An object without sections.
fn object() -> Vec<u8> {
    use object::{Architecture, BinaryFormat, Endianness};
    object::write::Object::new(BinaryFormat::Elf, Architecture::X86_64, Endianness::Little)
        .write()
        .unwrap()
}

/// The steps of the link below in their order, with one job at a time: the larger image first.
const STEPS: [&str; 3] = [
    "device link for amdgcn-amd-amdhsa (gfx908)",
    "device link for amdgcn-amd-amdhsa (gfx90a)",
    "host link",
];

/// Links two images while step `at` fails. Returns the result, the steps that began, and the number
/// of remaining temporary files.
fn ended(at: usize, fault: Fault) -> (Result<()>, Vec<String>, usize) {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| -> PathBuf {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    let pack = |arch: &str, image: &str| {
        let strings = [("triple", "amdgcn-amd-amdhsa"), ("arch", arch)];
        offload_binary::write(ImageKind::Object, 1, 0, &strings, image.as_bytes())
    };
    let inputs = [
        file("a", &pack("gfx90a", "small")),
        file("b", &pack("gfx908", "a larger one")),
    ];
    // The file name contains the version, so offld does not run the program to ask for it.
    let clang = file("clang-22", b"");
    std::fs::set_permissions(&clang, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let temps = folder.path().join("temps");
    std::fs::create_dir(&temps).unwrap();

    let options = [
        "--linker-path=/ld",
        "--wrapper-jobs=1",
        "--wrapper-cache=off",
        "--host-triple=x86_64-unknown-linux-gnu",
        "-o",
        "x",
    ];
    let mut argv: Vec<OsString> = options.map(OsString::from).to_vec();
    argv.push(format!("--offld-clang={}", clang.display()).into());
    argv.extend(inputs.map(PathBuf::into_os_string));
    let arguments = ArgumentList::parse(Role::Wrapper, argv).unwrap();
    let settings = LinkSettings::new(&arguments, &|_| None).unwrap();
    let steps = Arc::new(Mutex::new(Vec::new()));
    let runner = FailsAt {
        at,
        fault,
        calls: AtomicUsize::new(0),
        steps: Arc::clone(&steps),
    };
    let session = Session {
        shell: Arc::new(Shell::from_write("offld", Box::new(std::io::sink()))),
        runner: Box::new(runner),
        scratch: Arc::new(Scratch::new(temps.clone(), false)),
        signals: Arc::new(Signals::default()),
        trace: Trace::new(None, 0, "offld"),
        launcher: None,
    };
    let result = link(&arguments, &settings, &session, false);
    drop(session);
    let left = std::fs::read_dir(&temps).unwrap().count();
    let steps = steps.lock().unwrap().clone();
    (result, steps, left)
}

#[test]
fn the_error_is_that_of_the_step_that_failed() {
    for (at, step) in STEPS.iter().enumerate() {
        let (result, _, left) = ended(at, Fault::Error);
        let error = result.expect_err(step);
        assert_eq!(error::chain(&error), format!("{step} failed: on purpose"));
        assert_eq!(left, 0, "temporary files after step {at}");
    }
}

#[test]
fn nothing_runs_after_a_failed_device_link_but_other_device_links() {
    for (at, step) in STEPS.iter().enumerate() {
        let (_, steps, _) = ended(at, Fault::Error);
        assert!(steps.contains(&(*step).to_owned()));
        assert_eq!(
            steps.contains(&"host link".to_owned()),
            *step == "host link",
            "{steps:?}"
        );
    }
}

#[test]
fn f27_a_runner_that_leaves_no_image() {
    for (at, arch) in [(0, "gfx908"), (1, "gfx90a")] {
        let (result, _, left) = ended(at, Fault::NoOutput);
        let error = error::chain(&result.expect_err(arch));
        assert!(
            error.starts_with(&format!(
                "the device link for amdgcn-amd-amdhsa ({arch}) wrote no image"
            )),
            "{error}"
        );
        assert_eq!(left, 0);
    }
}

#[test]
fn all_steps_in_order_and_nothing_left() {
    let (result, steps, left) = ended(STEPS.len(), Fault::Error);
    result.unwrap();
    assert_eq!(steps, STEPS);
    assert_eq!(left, 0);
}
