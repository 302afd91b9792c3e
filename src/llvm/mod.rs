//! Client of `offld-llvm`, the program that contains LLVM and translates registration plans to
//! objects, bitcode, assembly or text. LLVM is in a separate process so that its crashes do not end
//! `offld`, and so that commands without LLVM do not load it.
//!
//! Both programs use `offload_formats::registration::protocol`, [`find_program`] finds the
//! executable, and [`Llvm`] manages the process for one command.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, anyhow, bail};

use crate::BUILD;
use offld_system::environment;
use offld_system::response::Style;
use offld_system::run::{self, Cmd};
use offld_system::service::Service;
use offld_system::session::Session;
use offld_system::threads::lock;
use offload_formats::error::StepFailed;
use offload_formats::registration::Plan;
use offload_formats::registration::protocol::{self, Answer, Form, Request};

/// Time limit of one request, unless `OFFLD_LLVM_TIMEOUT` is set.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(120);

/// The purpose of a request, for error reports.
#[derive(Debug, Clone, Default)]
pub(crate) struct Purpose {
    /// The step: `registration code for openmp`.
    pub step: String,
    /// The names of the images.
    pub inputs: Vec<String>,
}

/// The process of one command. It starts on first use or earlier ([`Llvm::start_early`]), and is
/// killed when this value is dropped.
pub(crate) struct Llvm<'s> {
    session: &'s Session,
    created: SystemTime,
    running: Mutex<Option<Running>>,
}

/// A running `offld-llvm`, which has received the request for the name of its build.
struct Running {
    service: Box<dyn Service>,
    cmd: Cmd,
    /// Whether it is verified to be from the same build.
    checked: bool,
    /// The requests whose answers have not been read yet, in order.
    pending: VecDeque<Vec<u8>>,
}

impl<'s> Llvm<'s> {
    /// Prepares the client for one command, without starting the program.
    pub(crate) fn new(session: &'s Session) -> Self {
        Llvm {
            session,
            created: SystemTime::now(),
            running: Mutex::new(None),
        }
    }

    /// Returns a time before the program started. Code belongs to the current program only if its
    /// file has not changed since then.
    pub(crate) fn created(&self) -> SystemTime {
        self.created
    }

    /// Starts the program early, so that it loads and initialises LLVM for the host `triple` in
    /// parallel with other work. Sends it `requests` ([`Request::encode`]), whose answers will most
    /// probably be needed, in this order. Errors are ignored here: the first request whose answer
    /// is needed reports them.
    pub(crate) fn start_early(&self, triple: &str, requests: Vec<Vec<u8>>) {
        let mut slot = lock(&self.running);
        if slot.is_some() {
            return;
        }
        let Ok(mut running) = self.start(Some(triple)) else {
            return;
        };
        for request in requests {
            if running.service.send(&request).is_err() {
                return;
            }
            running.pending.push_back(request);
        }
        *slot = Some(running);
    }

    /// Returns the registration code of `plan` in the form `form`.
    ///
    /// # Errors
    /// LLVM cannot generate code for the host or reports another error. The program is missing,
    /// ends, or does not answer in time; those errors name `purpose`.
    pub(crate) fn make(&self, form: Form, plan: &Plan, purpose: &Purpose) -> Result<Vec<u8>> {
        self.ask(
            &Request::Make {
                form,
                plan: plan.clone(),
            }
            .encode()?,
            purpose,
        )
    }

    /// Like [`Llvm::make`], for a plan that is encoded already ([`Request::encode`]).
    pub(crate) fn make_encoded(&self, request: &[u8], purpose: &Purpose) -> Result<Vec<u8>> {
        self.ask(request, purpose)
    }

    /// Returns LLVM's triple for this machine.
    pub(crate) fn default_triple(&self) -> Result<String> {
        let purpose = Purpose {
            step: "query of the default triple".to_owned(),
            inputs: Vec::new(),
        };
        Ok(String::from_utf8(
            self.ask(&Request::DefaultTriple.encode()?, &purpose)?,
        )?)
    }

    /// Ends the program early, because another request is unlikely. Another request starts it
    /// again.
    pub(crate) fn dismiss(&self) {
        if let Some(mut running) = lock(&self.running).take() {
            running.service.stop();
        }
    }

    fn ask(&self, request: &[u8], purpose: &Purpose) -> Result<Vec<u8>> {
        let mut slot = lock(&self.running);
        let mut running = match slot.take() {
            Some(running) => running,
            None => self.start(None)?,
        };
        running.cmd.step.clone_from(&purpose.step);
        running.cmd.inputs.clone_from(&purpose.inputs);
        if !running.pending.iter().any(|pending| pending == request) {
            running
                .service
                .send(request)
                .map_err(|ended| run::no_answer(&running.cmd, &ended))?;
            running.pending.push_back(request.to_vec());
        }
        if !running.checked {
            let hello = self.answer(&mut running)?;
            check_build(&running.cmd, &hello)?;
            running.checked = true;
        }
        // Answers to early requests that are not needed after all are skipped.
        let answer = loop {
            let answer = self.answer(&mut running)?;
            if running
                .pending
                .pop_front()
                .is_none_or(|pending| pending == request)
            {
                break answer;
            }
        };
        *slot = Some(running);
        match Answer::decode(&answer)? {
            Answer::Done(bytes) => Ok(bytes.to_vec()),
            Answer::Refused(why) => Err(anyhow!("{why}")),
        }
    }

    fn answer(&self, running: &mut Running) -> Result<Vec<u8>> {
        let answer = running.service.answer(timeout()?);
        // A signal ends the program as well, and is then the error to report.
        self.session.signals.check()?;
        answer.map_err(|ended| {
            let failed = StepFailed::into(run::no_answer(&running.cmd, &ended));
            if running.checked {
                failed
            } else {
                blame(&running.cmd, failed)
            }
        })
    }

    fn start(&self, host_triple: Option<&str>) -> Result<Running> {
        let program = find_program()?;
        let mut args = vec![OsString::from(protocol::SERVE)];
        args.extend(host_triple.map(OsString::from));
        let cmd = Cmd {
            step: "start of LLVM".to_owned(),
            program,
            args,
            quoting: Style::Gnu,
            inputs: Vec::new(),
            output: None,
        };
        let mut service = self
            .session
            .runner
            .serve(&cmd, &self.session.signals)
            .map_err(|error| blame(&cmd, error))?;
        service
            .send(&Request::Hello.encode()?)
            .map_err(|ended| run::no_answer(&cmd, &ended))?;
        Ok(Running {
            service,
            cmd,
            checked: false,
            pending: VecDeque::new(),
        })
    }
}

/// Adds `OFFLD_LLVM` to the error of a program that ended without naming its build. If the variable
/// is set, its value is the likely cause.
fn blame(cmd: &Cmd, error: anyhow::Error) -> anyhow::Error {
    match environment::get(environment::OFFLD_LLVM) {
        Some(_) => error.context(format!(
            "{}: `{}` is not a working offld-llvm",
            environment::OFFLD_LLVM,
            cmd.program.display()
        )),
        None => error,
    }
}

/// Fails unless the program that answered `hello` is from the same build as this one.
fn check_build(cmd: &Cmd, hello: &[u8]) -> Result<()> {
    if hello == BUILD.as_bytes() {
        return Ok(());
    }
    bail!(
        "`{}` and this offld are from different builds ({} and {BUILD}): install both from the same build, or set {} to the right \
         one",
        cmd.program.display(),
        String::from_utf8_lossy(hello.get(..hello.len().min(200)).unwrap_or_default()),
        environment::OFFLD_LLVM
    )
}

fn timeout() -> Result<Duration> {
    let Some(text) = environment::get(environment::OFFLD_LLVM_TIMEOUT) else {
        return Ok(DEFAULT_TIMEOUT);
    };
    match text
        .to_str()
        .and_then(|text| text.parse().ok())
        .filter(|seconds| *seconds > 0)
    {
        Some(seconds) => Ok(Duration::from_secs(seconds)),
        None => bail!(
            "{}={}: expected a number of seconds above 0",
            environment::OFFLD_LLVM_TIMEOUT,
            text.to_string_lossy()
        ),
    }
}

// Finds `offld-llvm`: the path in `OFFLD_LLVM`, else the directory of the running `offld`, else
// `../libexec/offld` from there.

const PROGRAM_NAME: &str = "offld-llvm";

/// Returns the path of `offld-llvm`.
///
/// # Errors
/// The program is in none of these locations. The error lists them, with the command that installs
/// the program.
pub(crate) fn find_program() -> Result<PathBuf> {
    if let Some(named) = environment::get(environment::OFFLD_LLVM) {
        let path = PathBuf::from(named);
        if !path.is_file() {
            bail!(
                "{} names `{}`, which is not a file",
                environment::OFFLD_LLVM,
                path.display()
            );
        }
        return Ok(path);
    }
    let own = run::own_executable()
        .context("cannot determine the path of offld, next to which offld-llvm is installed")?;
    let candidates = candidates(own.parent().unwrap_or(Path::new("/")));
    match candidates.iter().find(|place| place.is_file()) {
        Some(found) => Ok(found.clone()),
        None => bail!(
            "cannot find `{PROGRAM_NAME}`, the program that generates registration code: neither {} exists. Build it with `cargo build \
             --features llvm` or `make install`, or set {} to its path",
            candidates
                .iter()
                .map(|place| format!("`{}`", place.display()))
                .collect::<Vec<_>>()
                .join(" nor "),
            environment::OFFLD_LLVM
        ),
    }
}

fn candidates(folder: &Path) -> Vec<PathBuf> {
    let mut candidates = vec![folder.join(PROGRAM_NAME)];
    candidates.extend(
        folder
            .parent()
            .map(|above| above.join("libexec/offld").join(PROGRAM_NAME)),
    );
    // The library's own tests run one directory below the programs that cargo builds.
    if cfg!(test) {
        candidates.extend(folder.parent().map(|above| above.join(PROGRAM_NAME)));
    }
    candidates
}
