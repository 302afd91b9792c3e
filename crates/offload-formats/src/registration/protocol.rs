//! Protocol between `offld` and `offld-llvm`, the program that generates registration code:
//! requests and answers. The caller puts each into a frame. The first byte of a request is its
//! type; a plan follows in MessagePack. The first byte of an answer says whether the request
//! succeeded. The answer to [`Request::Hello`] is different: it is the bare name of the build, in
//! every version of this protocol.

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::Plan;

/// The first argument of `offld-llvm`: serve requests. A second argument may name a host's triple,
/// for which LLVM is then initialised.
pub const SERVE: &str = "serve";

const HELLO: u8 = 0;
const DEFAULT_TRIPLE: u8 = 1;
const MAKE: u8 = 2;
const DONE: u8 = 0;
const REFUSED: u8 = 1;

/// The form of registration code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Form {
    /// An object for the host.
    Object,
    /// LLVM bitcode.
    Bitcode,
    /// Assembly for the host.
    Assembly,
    /// LLVM IR as text.
    Text,
}

/// A request to `offld-llvm`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Asks for the name of the build of the program.
    Hello,
    /// Asks for the triple of this machine.
    DefaultTriple,
    /// Asks for registration code.
    Make {
        /// The form of the result.
        form: Form,
        /// The registration.
        plan: Plan,
    },
}

impl Request {
    /// The bytes of the request.
    ///
    /// # Errors
    /// The plan has lengths that are too large for the encoding.
    pub fn encode(&self) -> Result<Vec<u8>> {
        Ok(match self {
            Request::Hello => vec![HELLO],
            Request::DefaultTriple => vec![DEFAULT_TRIPLE],
            Request::Make { form, plan } => {
                let mut bytes = vec![MAKE];
                rmp_serde::encode::write(&mut bytes, &(form, plan))
                    .context("cannot encode a registration plan")?;
                bytes
            }
        })
    }

    /// Decodes a request.
    ///
    /// # Errors
    /// The bytes are not a request.
    pub fn decode(bytes: &[u8]) -> Result<Request> {
        match bytes.split_first() {
            Some((&HELLO, [])) => Ok(Request::Hello),
            Some((&DEFAULT_TRIPLE, [])) => Ok(Request::DefaultTriple),
            Some((&MAKE, rest)) => {
                let (form, plan) =
                    rmp_serde::from_slice(rest).context("cannot decode a registration plan")?;
                Ok(Request::Make { form, plan })
            }
            _ => bail!("unknown request"),
        }
    }
}

/// The answer of `offld-llvm` to every request except [`Request::Hello`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer<'a> {
    /// The result.
    Done(&'a [u8]),
    /// The reason for the failure.
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

    /// Decodes an answer.
    ///
    /// # Errors
    /// The bytes are not an answer.
    pub fn decode(bytes: &'a [u8]) -> Result<Answer<'a>> {
        match bytes.split_first() {
            Some((&DONE, rest)) => Ok(Answer::Done(rest)),
            Some((&REFUSED, rest)) => Ok(Answer::Refused(
                std::str::from_utf8(rest).context("offld-llvm sent an error that is not UTF-8")?,
            )),
            _ => bail!("offld-llvm sent an invalid answer"),
        }
    }
}
