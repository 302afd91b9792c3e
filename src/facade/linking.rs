//! [`link`]: a whole offload link by its command line.

use std::ffi::OsString;

use super::Messages;
use crate::args::{Ledger, Mode, Role};
use crate::error::Error;
use crate::link::pipeline;

/// How a link is done; what it is made of is on its command line.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct LinkOptions {
    /// Whose command line it is: that of `clang-linker-wrapper`, or that of a linker.
    pub role: Role,
    /// With [`Role::Ld`]: look for `ld` first, not for `ld.lld`, where the line names no linker.
    pub ld_first: bool,
    /// Where warnings go, and the commands that `--dry-run` and `--wrapper-verbose` show.
    pub messages: Messages,
}

/// Links what the command line `argv` says, without the program's name: links the device code that is embedded in the inputs, makes
/// an object that registers it when the program starts, and runs the host linker on the line with that object in it.
///
/// Device links run clang, and registration needs `offld-llvm`; they are looked for as the program `offld` looks for them, and the
/// same environment variables are read (`OFFLD_CLANG`, `OFFLD_LLVM`, `OFFLD_CACHE` and so on). Unlike the program, this function
/// installs no signal handlers and comes back where no device code is found, too.
///
/// # Errors
/// [`Error::Usage`] where an option's value is wrong, or the line asks for help or a version; [`Error::StepFailed`] with the exit
/// status of a compiler or linker that failed; [`Error::Malformed`] and [`Error::Io`] for inputs that cannot be read.
///
/// ```
/// use offld::{Error, LinkOptions, Messages};
///
/// let mut options = LinkOptions::default();
/// options.messages = Messages::discard();
/// let error = offld::link(["--wrapper-jobs=many", "a.o"], &options).unwrap_err();
/// assert!(matches!(error, Error::Usage { .. }), "{error}");
/// ```
pub fn link<I>(argv: I, options: &LinkOptions) -> Result<(), Error>
where
    I: IntoIterator,
    I::Item: Into<OsString>,
{
    let ledger = Ledger::read(options.role, argv.into_iter().map(Into::into).collect())?;
    if ledger.mode() != Mode::Link {
        return Err(Error::usage("the command line asks for help or a version, and not for a link"));
    }
    pipeline::run(&ledger, &options.messages.shell, options.ld_first, true).map_err(Error::of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_without_device_code_comes_back_with_the_linkers_status() {
        let options = LinkOptions { messages: Messages::discard(), ..LinkOptions::default() };
        // A process that was replaced by this linker would end, and the tests with it.
        let result = link(["--linker-path=/bin/false", "-o", "x"], &options);
        assert!(matches!(&result, Err(Error::StepFailed(step)) if step.status == 1), "{result:?}");
        assert!(matches!(link(["--help"], &options), Err(Error::Usage { .. })));
    }
}
