//! Work in parallel with the stages of a link: pending writes to the cache, the program that holds LLVM, and the host linker, which
//! loads while device links run.

use std::ffi::OsString;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Error, anyhow};

use crate::args::Ledger;
use crate::args::request::LinkRequest;
use crate::formats::magic::Magic;
use crate::link::host;
use crate::link::scan;
use crate::llvm::Llvm;
use crate::store::settings::{self, Setting};
use crate::store::{Cache, SecretKey};
use crate::sys::run::PreloadedLinker;
use crate::sys::session::Session;
use crate::sys::threads;

/// From so many processors on, two linkers and a compiler load beside each other without getting in each other's way.
const FOR_THREE: usize = 4;

/// The cache and the helper processes of one link.
pub(super) struct Background<'s> {
    /// The cache, or why there is none.
    pub(super) cache: Result<Arc<Cache>, String>,
    /// What is wrong with what the user has set for it.
    wrong_setting: Option<String>,
    /// Why the key that the user has named cannot be used.
    wrong_key: Option<String>,
    /// Generates registration code.
    pub(super) llvm: Llvm<'s>,
    /// The host linker, started early.
    linker: Mutex<Option<PreloadedLinker>>,
    /// Whether a device link has begun to run.
    linking: AtomicBool,
    request: &'s LinkRequest,
    session: &'s Session,
}

impl<'s> Background<'s> {
    /// For one link; nothing is started yet.
    pub(super) fn new(request: &'s LinkRequest, session: &'s Session) -> Self {
        let setting = settings::resolve(request.cache.as_deref());
        let wrong_setting = setting.why_off.clone().filter(|_| setting.is_wrong);
        // Without a cache nothing is signed.
        let key = if setting.root.is_some() { SecretKey::of_environment() } else { Ok(None) };
        let key = key.map_err(|error| format!("{error:#}"));
        let wrong_key = key.as_ref().err().cloned();
        Background {
            cache: key.and_then(|key| open_cache(&setting, key, session)),
            wrong_setting,
            wrong_key,
            llvm: Llvm::new(session),
            linker: Mutex::new(None),
            linking: AtomicBool::new(false),
            request,
            session,
        }
    }

    /// Warns of a wrong setting of the cache. Called once there is device code: other links need no cache.
    ///
    /// # Errors
    /// The user has named a key that cannot be used. To go on without would be to share what nobody vouches for.
    pub(super) fn check_setting(&self) -> Result<(), Error> {
        if let Some(wrong) = &self.wrong_key {
            return Err(anyhow!("{wrong}"));
        }
        if let Some(wrong) = &self.wrong_setting {
            self.session.shell.warn(&format!("{wrong}; device links are not cached"));
        }
        Ok(())
    }

    /// What starts the host linker `linker` for the link of `ledger` before its whole line is known.
    pub(super) fn linker_starter<'b>(&'b self, ledger: &'b Ledger, linker: &'b Path) -> LinkerStarter<'b> {
        LinkerStarter { background: self, ledger, linker, started: None, looks_left: LinkerStarter::LOOKS }
    }

    /// Whether the host linker is better started only when a device link runs. With a new cache the compiler has to be asked what it
    /// would run, which everything waits for; and on few processors three programs that load at once take longer each.
    fn compiler_goes_first(&self) -> bool {
        self.cache.as_ref().is_ok_and(|cache| cache.is_new()) && threads::count() < FOR_THREE
    }

    /// Starts the host linker `linker` with `args`; it then waits for its other arguments.
    fn start_linker(&self, linker: &Path, args: &[OsString]) {
        let preloaded = self.session.runner.preload(linker, args, false);
        *self.linker.lock().unwrap_or_else(PoisonError::into_inner) = preloaded;
    }

    /// Starts the host linker `linker` when the first device link runs, unless it was started before.
    pub(super) fn start_late_linker(&self, linker: &Path, args: Option<&Vec<OsString>>) {
        let idle = self.linker.lock().unwrap_or_else(PoisonError::into_inner).is_none();
        if let Some(args) = args.filter(|_| idle) {
            self.start_linker(linker, args);
        }
    }

    /// The host linker that was started early, if there is one.
    pub(super) fn take_linker(&self) -> Option<PreloadedLinker> {
        self.linker.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Does `work`, which prepares the registration, when the first device link runs. A dry run registers nothing, and near a limit
    /// of processes the compiler needs the room.
    pub(super) fn while_linking(&self, work: impl FnOnce()) {
        let wanted = !self.request.dry_run && !self.request.emit_fatbin_only && !threads::is_short();
        if wanted && !self.linking.swap(true, Ordering::SeqCst) {
            work();
        }
    }

    /// Starts what had to wait for a moment at which one program alone runs: now that is the host linker.
    pub(super) fn use_spare_processors(&self) {
        if let Ok(cache) = &self.cache {
            cache.do_waiting();
        }
    }

    /// Waits for pending writes to the cache, unless a signal has arrived.
    pub(super) fn finish(&self) {
        if let Ok(cache) = &self.cache {
            cache.finish_unless(&|| self.session.signals.check_received().is_err());
        }
    }
}

/// Starts the host linker of one link once, as soon as it is known that there is device code.
pub(super) struct LinkerStarter<'b> {
    background: &'b Background<'b>,
    ledger: &'b Ledger,
    linker: &'b Path,
    /// Once that is known: the arguments that it is started with, or none if it cannot be started early.
    started: Option<Option<Vec<OsString>>>,
    /// How many objects are still looked into.
    looks_left: usize,
}

impl LinkerStarter<'_> {
    /// A program with device code has some in its first objects. One without must not be read twice.
    const LOOKS: usize = 8;

    /// How many inputs take longer to look through than it takes to run the linker beside this process instead of in its place: with
    /// 300 small objects it saves 1.3 ms, with one it costs 1 ms.
    const MANY: usize = 100;

    /// Starts the linker of a line that names `inputs` files, if those are so many that it had better load while they are opened.
    /// Where there is no device code after all, it does the link as it is.
    pub(super) fn expect(&mut self, inputs: usize) {
        if inputs > Self::MANY && self.background.session.runner.can_be_replaced() && threads::count() > 1 {
            // Also with a new cache: whether there is a compiler that should go first is not known yet.
            self.start_if(true);
        }
    }

    /// Starts the linker if the input file `data` has device code.
    pub(super) fn look(&mut self, kind: Magic, data: &[u8]) {
        if kind == Magic::Elf && self.looks_left > 0 && self.started.is_none() {
            self.looks_left -= 1;
            if scan::object::has_device_sections(data) {
                self.start();
            }
        }
    }

    /// Starts the linker, unless that is done or left to [`Background::start_late_linker`]. Returns the arguments that it is started
    /// with, or none if it cannot be started early.
    pub(super) fn start(&mut self) -> Option<Vec<OsString>> {
        self.start_if(!self.background.compiler_goes_first())
    }

    fn start_if(&mut self, now: bool) -> Option<Vec<OsString>> {
        let Self { background, ledger, linker, .. } = *self;
        let start = || {
            let args = host::preload_args(ledger, linker).filter(|_| !background.request.emit_fatbin_only)?;
            if now {
                background.start_linker(linker, &args);
            }
            Some(args)
        };
        self.started.get_or_insert_with(start).clone()
    }
}

/// The cache that the options and the environment select, or why there is none.
fn open_cache(setting: &Setting, key: Option<SecretKey>, session: &Session) -> Result<Arc<Cache>, String> {
    let root = setting.root.as_deref().ok_or_else(|| setting.why_off.clone().unwrap_or_default())?;
    let shell = Arc::clone(&session.shell);
    let cache = Cache::open(setting, root, key, Arc::new(move |warning| shell.warn(warning)));
    Ok(Arc::new(cache.map_err(|error| format!("{error:#}"))?))
}
