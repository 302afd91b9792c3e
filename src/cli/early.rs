//! A link without device code, before LLVM starts. LLVM's own start-up (its several hundred option objects) takes most of the time of
//! such a link, and runs before `main` because LLVM is linked in. This constructor comes before LLVM's: when the line has no device
//! code it becomes the host linker, and LLVM never starts. In every other case it returns, and `main` goes on with the inputs.

use std::ffi::OsString;
use std::sync::{Arc, Mutex, PoisonError};

use super::{by_name, link};
use crate::link::inputs::Inputs;
use crate::sys::shell::Shell;

/// After 99, where Rust's library takes note of the arguments, and before LLVM's, which have no number.
#[used]
#[expect(unsafe_code, reason = "a constructor is a function pointer in this section; there is no safe way to ask for one")]
#[unsafe(link_section = ".init_array.00100")]
static BEFORE_LLVM: extern "C" fn() = replace_if_plain;

/// What was opened to look for device code, for `main` to go on with.
static OPENED: Mutex<Option<Inputs>> = Mutex::new(None);

/// The inputs of the line, if they are open: once.
pub(super) fn opened() -> Option<Inputs> {
    OPENED.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// Makes the linker keep this module's constructor in the binary: nothing else refers to it.
pub(super) fn keep() {
    std::hint::black_box(&raw const BEFORE_LLVM);
}

extern "C" fn replace_if_plain() {
    // Whatever goes wrong here, `main` meets it again and reports it; a panic must not cross into the C library.
    let _ = std::panic::catch_unwind(|| {
        let argv: Vec<OsString> = std::env::args_os().collect();
        let Some(personality) = argv.first().and_then(|called| by_name(called)) else { return };
        let shell = Arc::new(Shell::stderr(""));
        let Ok(inputs) = link::replace_if_plain(argv[1..].to_vec(), personality.name, &shell) else { return };
        *OPENED.lock().unwrap_or_else(PoisonError::into_inner) = inputs;
    });
}
