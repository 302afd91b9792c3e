//! What goes on beside the stages of a link: the cache and what is still being written to it, LLVM's program, and the host linker that
//! loads while device links run.

use std::ffi::OsString;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use crate::args::Ledger;
use crate::args::request::LinkRequest;
use crate::link::host;
use crate::llvm::Llvm;
use crate::store::{Cache, settings};
use crate::sys::run::PreloadedLinker;
use crate::sys::session::Session;

/// What is at hand during one link, besides the values of its stages.
pub(super) struct Beside<'s> {
    /// Where results are kept, or why they are not.
    pub(super) cache: Result<Arc<Cache>, String>,
    /// Makes registration code.
    pub(super) llvm: Llvm<'s>,
    /// The host linker, started ahead of its time.
    linker: Mutex<Option<PreloadedLinker>>,
    request: &'s LinkRequest,
    session: &'s Session,
}

impl<'s> Beside<'s> {
    /// For one link; nothing is started yet.
    pub(super) fn new(request: &'s LinkRequest, session: &'s Session) -> Self {
        Beside { cache: open_cache(request, session), llvm: Llvm::new(session), linker: Mutex::new(None), request, session }
    }

    /// Starts the host linker `linker`, which then waits for its line. Returns the words that it was started with, if it can be.
    pub(super) fn start_linker(&self, ledger: &Ledger, linker: &Path) -> Option<Vec<OsString>> {
        let words = host::preload_args(ledger, linker).filter(|_| !self.request.emit_fatbin_only);
        let waiting = words.as_ref().and_then(|words| self.session.runner.preload(linker, words, false));
        *self.linker.lock().unwrap_or_else(PoisonError::into_inner) = waiting;
        words
    }

    /// The host linker that waits for its line, if there is one.
    pub(super) fn take_linker(&self) -> Option<PreloadedLinker> {
        self.linker.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Has LLVM get ready for the host `triple`: a device link is about to run, so registration code will be needed, and most probably
    /// made. Commands that are only shown need none.
    pub(super) fn start_llvm(&self, triple: &str) {
        if !self.request.dry_run && !self.request.emit_fatbin_only {
            self.llvm.get_ready(triple);
        }
    }

    /// Waits for what is still on its way into the cache, unless a signal has come.
    pub(super) fn finish(&self) {
        if let Ok(cache) = &self.cache {
            cache.finish_unless(&|| self.session.signals.check().is_err());
        }
    }
}

/// The cache that the line and the environment name, or why there is none.
fn open_cache(request: &LinkRequest, session: &Session) -> Result<Arc<Cache>, String> {
    let setting = settings::resolve(request.cache.as_deref());
    let root = setting.root.ok_or_else(|| setting.why_off.unwrap_or_default())?;
    let shell = Arc::clone(&session.shell);
    let cache = Cache::open(&root, setting.limit, Arc::new(move |warning| shell.warn(warning)));
    Ok(Arc::new(cache.map_err(|error| format!("{error:#}"))?))
}
