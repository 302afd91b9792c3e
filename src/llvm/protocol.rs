//! What `offld` and `offld-llvm` say to each other, in frames (`sys::service`): a request, and its answer. A request's first byte says
//! what it is; a plan follows in MessagePack. An answer's first byte says whether it was done; the answer to [`Request::Hello`] is the
//! bare name of the build, in every version of this protocol.

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::registration::Plan;

/// The word with which `offld-llvm` is told to serve requests. A host's triple may follow, to get ready for.
pub const SERVE: &str = "serve";

/// The build that a program is of: the version of this protocol, that of the crate, and a digest of the sources compiled in. Two
/// programs that say the same agree on plans.
pub const BUILD: &str = concat!("offld-llvm 1 ", env!("CARGO_PKG_VERSION"), " ", env!("OFFLD_SOURCES"));

const HELLO: u8 = 0;
const DEFAULT_TRIPLE: u8 = 1;
const MAKE: u8 = 2;
const DONE: u8 = 0;
const REFUSED: u8 = 1;

/// What registration code is written as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Form {
    /// An object of the host.
    Object,
    /// LLVM bitcode.
    Bitcode,
    /// Assembly of the host.
    Assembly,
    /// LLVM IR as text.
    Text,
}

/// What `offld-llvm` is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Which build it is of.
    Hello,
    /// The triple of this machine.
    DefaultTriple,
    /// Registration code.
    Make {
        /// What it is written as.
        form: Form,
        /// What it registers.
        plan: Plan,
    },
}

impl Request {
    /// The bytes of the request.
    ///
    /// # Errors
    /// A plan with lengths that the encoding has no room for.
    pub fn encode(&self) -> Result<Vec<u8>> {
        Ok(match self {
            Request::Hello => vec![HELLO],
            Request::DefaultTriple => vec![DEFAULT_TRIPLE],
            Request::Make { form, plan } => {
                let mut bytes = vec![MAKE];
                rmp_serde::encode::write(&mut bytes, &(form, plan)).context("cannot encode a registration plan")?;
                bytes
            }
        })
    }

    /// The request that `bytes` are.
    ///
    /// # Errors
    /// Bytes that are no request.
    pub fn decode(bytes: &[u8]) -> Result<Request> {
        match bytes.split_first() {
            Some((&HELLO, [])) => Ok(Request::Hello),
            Some((&DEFAULT_TRIPLE, [])) => Ok(Request::DefaultTriple),
            Some((&MAKE, rest)) => {
                let (form, plan) = rmp_serde::from_slice(rest).context("a registration plan that cannot be decoded")?;
                Ok(Request::Make { form, plan })
            }
            _ => bail!("an unknown request"),
        }
    }
}

/// What `offld-llvm` answers to everything but [`Request::Hello`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer<'a> {
    /// What was asked for.
    Done(&'a [u8]),
    /// Why it cannot be had.
    Refused(&'a str),
}

impl<'a> Answer<'a> {
    /// The bytes of the answer.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Answer::Done(bytes) => [&[DONE], *bytes].concat(),
            Answer::Refused(why) => [&[REFUSED], why.as_bytes()].concat(),
        }
    }

    /// The answer that `bytes` are.
    ///
    /// # Errors
    /// Bytes that are no answer.
    pub fn decode(bytes: &'a [u8]) -> Result<Answer<'a>> {
        match bytes.split_first() {
            Some((&DONE, rest)) => Ok(Answer::Done(rest)),
            Some((&REFUSED, rest)) => Ok(Answer::Refused(std::str::from_utf8(rest).context("an answer that is not text")?)),
            _ => bail!("offld-llvm gave an answer that is none"),
        }
    }
}
