//! [`link`]: a complete offload link, from its command line.

use std::ffi::OsString;

use super::Messages;
use crate::args::{ArgumentList, Mode, Role};
use crate::error::Error;
use crate::link::pipeline;

/// Options for a link that are not on its command line.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct LinkOptions {
    /// The syntax of the command line: that of `clang-linker-wrapper`, or that of a linker.
    pub role: Role,
    /// With [`Role::Ld`]: prefer `ld` to `ld.lld` if the command line names no linker.
    pub ld_first: bool,
    /// The destination of warnings, and of the commands that `--dry-run` and `--wrapper-verbose`
    /// show.
    pub messages: Messages,
}

/// Runs the link of the command line `argv`, which excludes the program's name. It links the device
/// code embedded in the inputs, creates an object that registers the images when the program
/// starts, and runs the host linker with that object added.
///
/// Device links run clang, and registration needs `offld-llvm`. This function finds them like the
/// program `offld`, and reads the same environment variables (`OFFLD_CLANG`, `OFFLD_LLVM`,
/// `OFFLD_CACHE` and others). Unlike the program, it installs no signal handlers and always
/// returns, even if the inputs contain no device code.
///
/// # Errors
/// [`Error::Usage`] for an invalid option value, or if the command line requests help or a version;
/// [`Error::StepFailed`] with the exit status of a failed compiler or linker; [`Error::Malformed`]
/// and [`Error::Io`] for unreadable inputs.
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
    let ledger = ArgumentList::read(options.role, argv.into_iter().map(Into::into).collect())?;
    if ledger.mode() != Mode::Link {
        return Err(Error::usage(
            "the command line asks for help or a version, not for a link",
        ));
    }
    pipeline::run(&ledger, &options.messages.shell, options.ld_first, true).map_err(Error::of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_without_device_code_comes_back_with_the_linkers_status() {
        let options = LinkOptions {
            messages: Messages::discard(),
            ..LinkOptions::default()
        };
        // If the process became this linker, the tests would end with it.
        let result = link(["--linker-path=/bin/false", "-o", "x"], &options);
        assert!(
            matches!(&result, Err(Error::StepFailed(step)) if step.status == 1),
            "{result:?}"
        );
        assert!(matches!(
            link(["--help"], &options),
            Err(Error::Usage { .. })
        ));
    }
}
