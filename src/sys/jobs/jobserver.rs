//! Make's jobserver. A running device link holds one token for each granted thread. The partitions
//! of full LTO may use more threads (`codegen_threads`).

use std::sync::atomic::{AtomicBool, Ordering};

use jobserver::{Acquired, Client};

/// Make's jobserver, and the one token that every process has from the start.
#[derive(Debug)]
pub(super) struct Jobserver {
    client: Client,
    own_token_taken: AtomicBool,
}

/// A token of the jobserver. Dropping it gives it back.
#[derive(Debug)]
pub(super) enum Token<'s> {
    /// The implicit token of this process.
    Own(&'s AtomicBool),
    /// A token from the jobserver, given back by its own `Drop`.
    Granted { _token: Acquired },
}

impl Jobserver {
    /// Returns the jobserver that the environment names.
    #[expect(
        unsafe_code,
        reason = "a jobserver is inherited as file descriptors; they are checked to be pipes, and this process has opened none before"
    )]
    pub(super) fn from_environment() -> Option<Jobserver> {
        // SAFETY: the descriptors come from MAKEFLAGS of the make that started us and are checked
        // to be open pipes.
        let client = unsafe { Client::from_env_ext(true) }.client.ok()?;
        Some(Jobserver {
            client,
            own_token_taken: AtomicBool::new(false),
        })
    }

    /// Returns a token, if one is free.
    pub(super) fn token(&self) -> Option<Token<'_>> {
        if !self.own_token_taken.swap(true, Ordering::SeqCst) {
            return Some(Token::Own(&self.own_token_taken));
        }
        self.client
            .try_acquire()
            .ok()
            .flatten()
            .map(|token| Token::Granted { _token: token })
    }
}

impl Drop for Token<'_> {
    fn drop(&mut self) {
        if let Token::Own(taken) = self {
            taken.store(false, Ordering::SeqCst);
        }
    }
}
