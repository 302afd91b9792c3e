//! LLVM, from the side of those who need it: registration plans go to a program of its own, `offld-llvm`, and come back as an object,
//! bitcode, assembly or text. So what crashes LLVM cannot crash `offld`, and a command that needs no LLVM never loads it.
//!
//! `protocol` is what both programs have in common, `program` finds the other one, and [`Llvm`] is one command's use of it.

pub(crate) mod program;
pub mod protocol;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Result, anyhow, bail};

use crate::args::response::Style;
use crate::error::StepFailed;
use crate::registration::Plan;
use crate::sys::run::{self, Cmd};
use crate::sys::service::Service;
use crate::sys::session::{self, Session};
use protocol::{Answer, BUILD, Form, Request};

/// How long an answer may take, unless `OFFLD_LLVM_TIMEOUT` says otherwise.
const PATIENCE: Duration = Duration::from_secs(120);

/// What a request is for, as its error names it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Purpose {
    /// The step: `registration code for openmp`.
    pub step: String,
    /// What it is made of: the images and where they are from.
    pub inputs: Vec<String>,
}

/// LLVM as one command uses it: started when it is first needed, or ahead of that, and gone when this is dropped.
pub(crate) struct Llvm<'s> {
    session: &'s Session,
    running: Mutex<Option<Running>>,
}

/// `offld-llvm`, started. It has said who it is once it was asked for the first time.
struct Running {
    service: Box<dyn Service>,
    cmd: Cmd,
    checked: bool,
}

impl<'s> Llvm<'s> {
    /// For one command; nothing is started yet.
    pub(crate) fn new(session: &'s Session) -> Self {
        Llvm { session, running: Mutex::new(None) }
    }

    /// Starts the program ahead of its time: it loads, and gets its tables for the host `triple` ready, while others work. What is wrong
    /// shows when it is asked.
    pub(crate) fn get_ready(&self, triple: &str) {
        let mut running = self.lock();
        if running.is_none() {
            *running = self.start(Some(triple)).ok();
        }
    }

    /// The registration code of `plan` in the form `form`.
    ///
    /// # Errors
    /// A host that LLVM makes no code for, whatever else LLVM says, no program to ask, and one that ends or gives no answer in time:
    /// that error names `purpose`.
    pub(crate) fn make(&self, form: Form, plan: &Plan, purpose: &Purpose) -> Result<Vec<u8>> {
        self.ask(&Request::Make { form, plan: plan.clone() }.encode()?, purpose)
    }

    /// The same, with `plan` encoded already ([`Request::encode`]).
    pub(crate) fn make_encoded(&self, request: &[u8], purpose: &Purpose) -> Result<Vec<u8>> {
        self.ask(request, purpose)
    }

    /// The triple of this machine, as LLVM names it.
    pub(crate) fn default_triple(&self) -> Result<String> {
        let purpose = Purpose { step: "question for the default triple".to_owned(), inputs: Vec::new() };
        Ok(String::from_utf8(self.ask(&Request::DefaultTriple.encode()?, &purpose)?)?)
    }

    /// Nothing more is asked from here on: the program ends while others work.
    pub(crate) fn dismiss(&self) {
        if let Some(running) = self.lock().as_mut() {
            running.service.stop();
        }
    }

    fn ask(&self, request: &[u8], purpose: &Purpose) -> Result<Vec<u8>> {
        let mut slot = self.lock();
        let mut running = match slot.take() {
            Some(running) => running,
            None => self.start(None)?,
        };
        running.cmd.step.clone_from(&purpose.step);
        running.cmd.inputs.clone_from(&purpose.inputs);
        if !running.checked {
            let hello = self.exchange(&mut running, &Request::Hello.encode()?)?;
            check_build(&running.cmd, &hello)?;
            running.checked = true;
        }
        let answer = self.exchange(&mut running, request)?;
        *slot = Some(running);
        match Answer::decode(&answer)? {
            Answer::Done(bytes) => Ok(bytes.to_vec()),
            Answer::Refused(why) => Err(anyhow!("{why}")),
        }
    }

    fn exchange(&self, running: &mut Running, request: &[u8]) -> Result<Vec<u8>> {
        let answer = running.service.ask(request, patience()?);
        // A signal ends the program as well, and is the better reason.
        self.session.signals.check()?;
        answer.map_err(|ended| StepFailed::into(run::no_answer(&running.cmd, &ended)))
    }

    fn start(&self, ready_for: Option<&str>) -> Result<Running> {
        let program = program::find()?;
        let mut args = vec![OsString::from(protocol::SERVE)];
        args.extend(ready_for.map(OsString::from));
        let cmd = Cmd { step: "start of LLVM".to_owned(), program, args, quoting: Style::Gnu, inputs: Vec::new(), output: None };
        let service = self.session.runner.serve(&cmd, &self.session.signals)?;
        Ok(Running { service, cmd, checked: false })
    }

    fn lock(&self) -> MutexGuard<'_, Option<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An error unless the program that says `hello` was built with this one.
fn check_build(cmd: &Cmd, hello: &[u8]) -> Result<()> {
    if hello == BUILD.as_bytes() {
        return Ok(());
    }
    bail!(
        "`{}` is of another build than this offld ({} and {BUILD}): install both from one build, or name the right one with {}",
        cmd.program.display(),
        String::from_utf8_lossy(hello.get(..hello.len().min(200)).unwrap_or_default()),
        session::OFFLD_LLVM
    )
}

fn patience() -> Result<Duration> {
    let Some(text) = Session::env(session::OFFLD_LLVM_TIMEOUT) else { return Ok(PATIENCE) };
    match text.to_str().and_then(|text| text.parse().ok()).filter(|seconds| *seconds > 0) {
        Some(seconds) => Ok(Duration::from_secs(seconds)),
        None => bail!("{}={} is not a number of seconds above 0", session::OFFLD_LLVM_TIMEOUT, text.to_string_lossy()),
    }
}
