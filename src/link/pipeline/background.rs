//! Work in parallel with the stages of a link: pending writes to the cache, the program that holds
//! LLVM, and the host linker, which loads while device links run.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, bail};

use crate::args::ArgumentList;
use crate::args::settings::LinkSettings;
use crate::link::host;
use crate::link::scan;
use crate::llvm::Llvm;
use offld_system::run::PreloadedLinker;
use offld_system::session::Session;
use offld_system::store::{Caching, Reason};
use offld_system::threads::{self, lock};
use offload_formats::magic::Magic;

/// Number of CPUs from which two linkers and a compiler load in parallel without slowing each other
/// down.
const FOR_THREE: usize = 4;

/// The cache and the helper processes of one link.
pub(super) struct Background<'s> {
    pub(super) caching: Caching,
    /// Generates registration code.
    pub(super) llvm: Llvm<'s>,
    /// The host linker, started early.
    linker: Mutex<Option<PreloadedLinker>>,
    /// Whether a device link has begun to run.
    linking: AtomicBool,
    settings: &'s LinkSettings,
    session: &'s Session,
}

impl<'s> Background<'s> {
    /// Prepares the background work of one link, without starting any of it.
    pub(super) fn new(settings: &'s LinkSettings, session: &'s Session) -> Self {
        Background {
            caching: Caching::open(settings.cache.folder.clone(), &session.shell),
            llvm: Llvm::new(session),
            linker: Mutex::new(None),
            linking: AtomicBool::new(false),
            settings,
            session,
        }
    }

    /// Warns of an invalid cache setting. Called once there is device code, because other links
    /// need no cache.
    ///
    /// # Errors
    /// The user's key cannot be used. Continuing without it would store and read unsigned entries
    /// in a shared cache.
    pub(super) fn check_setting(&self) -> Result<()> {
        match &self.caching {
            Caching::Off(Reason::InvalidKey(wrong)) => bail!("{wrong}"),
            Caching::Off(Reason::InvalidSetting(wrong)) => self
                .session
                .shell
                .warn(&format!("{wrong}; device links are not cached")),
            _ => {}
        }
        Ok(())
    }

    /// Returns the starter of the host linker `linker`, which can start it before its whole command
    /// line is known.
    pub(super) fn linker_starter<'b>(
        &'b self,
        arguments: &'b ArgumentList,
        linker: &'b Path,
    ) -> LinkerStarter<'b> {
        LinkerStarter {
            background: self,
            arguments,
            linker,
            started: None,
            looks_left: LinkerStarter::LOOKS,
        }
    }

    /// Whether the host linker should start only when a device link runs. With a new cache, every
    /// step waits until the compiler has printed its commands. With few CPUs, three programs that
    /// load in parallel slow each other down.
    fn compiler_goes_first(&self) -> bool {
        self.caching.cache().is_ok_and(|cache| cache.is_new()) && threads::count() < FOR_THREE
    }

    /// Starts the host linker `linker` with `args`. It then waits for its other arguments.
    fn start_linker(&self, linker: &Path, args: &[OsString]) {
        let preloaded = self.session.runner.preload(linker, args, false);
        *lock(&self.linker) = preloaded;
    }

    /// Starts the host linker `linker` when the first device link runs, unless it has been started
    /// already.
    pub(super) fn start_late_linker(&self, linker: &Path, args: Option<&Vec<OsString>>) {
        let idle = lock(&self.linker).is_none();
        if let Some(args) = args.filter(|_| idle) {
            self.start_linker(linker, args);
        }
    }

    /// Takes the host linker that was started early, if there is one.
    pub(super) fn take_linker(&self) -> Option<PreloadedLinker> {
        lock(&self.linker).take()
    }

    /// Runs `work`, which prepares the registration, when the first device link runs. A dry run and
    /// `--emit-fatbin-only` register nothing. Near a process limit, the remaining processes are
    /// left to the compiler.
    pub(super) fn while_linking(&self, work: impl FnOnce()) {
        let wanted =
            !self.settings.run.dry_run && !self.settings.emit_fatbin_only && !threads::is_short();
        if wanted && !self.linking.swap(true, Ordering::SeqCst) {
            work();
        }
    }

    /// Starts the cache work that waits until only one other program runs. That is now the case:
    /// the host linker runs alone.
    pub(super) fn use_spare_processors(&self) {
        if let Ok(cache) = self.caching.cache() {
            cache.do_waiting();
        }
    }

    /// Waits for pending writes to the cache, unless a signal has arrived.
    pub(super) fn finish(&self) {
        if let Ok(cache) = self.caching.cache() {
            cache.finish_unless(&|| self.session.signals.check_received().is_err());
        }
    }
}

/// Starts the host linker of one link, once, as soon as device code is found.
pub(super) struct LinkerStarter<'b> {
    background: &'b Background<'b>,
    arguments: &'b ArgumentList,
    linker: &'b Path,
    /// The decision, once made: the arguments that the linker is started with, or none if it cannot
    /// be started early.
    started: Option<Option<Vec<OsString>>>,
    /// How many more objects to search.
    looks_left: usize,
}

impl LinkerStarter<'_> {
    /// How many objects to search for device code. A program with device code has some in its first
    /// objects. A program without device code must not be read twice.
    const LOOKS: usize = 8;

    /// From this number of inputs on, searching them takes longer than running the linker next to
    /// this process instead of replacing it. With 300 small objects, the early start saves 1.3 ms;
    /// with one object, it costs 1 ms.
    const MANY: usize = 100;

    /// Starts the linker if `inputs`, the number of inputs, is so high that the linker should load
    /// while they are opened. If there is no device code after all, this linker does the link
    /// without changes.
    pub(super) fn expect(&mut self, inputs: usize) {
        if inputs > Self::MANY
            && self.background.session.runner.can_be_replaced()
            && threads::count() > 1
        {
            // Also with a new cache: it is not yet known whether this link runs a compiler that
            // should start first.
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

    /// Starts the linker, unless it has been started or [`Background::start_late_linker`] will
    /// start it. Returns the arguments that it is started with, or none if it cannot be started
    /// early.
    pub(super) fn start(&mut self) -> Option<Vec<OsString>> {
        self.start_if(!self.background.compiler_goes_first())
    }

    fn start_if(&mut self, now: bool) -> Option<Vec<OsString>> {
        let Self {
            background,
            arguments,
            linker,
            ..
        } = *self;
        let start = || {
            let args = host::preload_args(arguments, linker)
                .filter(|_| !background.settings.emit_fatbin_only)?;
            if now {
                background.start_linker(linker, &args);
            }
            Some(args)
        };
        self.started.get_or_insert_with(start).clone()
    }
}
