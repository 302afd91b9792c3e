//! Runner of a dry run: prints commands.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};

use super::{Cmd, Equivalent, Run};
use crate::sys::shell::Shell;
use crate::sys::trace::Usage;

/// Prints commands, and creates empty outputs so that later steps find them.
pub(crate) struct Dry {
    /// Receives the printed commands.
    pub shell: Arc<Shell>,
}

impl Run for Dry {
    fn run(&self, cmd: &Cmd) -> Result<Usage> {
        self.shell.command(&cmd.program, &cmd.args);
        if let Some(output) = &cmd.output {
            std::fs::write(output, b"")
                .with_context(|| format!("cannot write `{}`", output.display()))?;
        }
        Ok(Usage::default())
    }

    fn replace(&self, cmd: &Cmd) -> Result<()> {
        self.run(cmd).map(drop)
    }

    fn program(&self, found: Result<PathBuf>, name: &str) -> Result<PathBuf> {
        Ok(found.unwrap_or_else(|_| name.into()))
    }

    fn in_order(&self) -> bool {
        true
    }

    fn show_in_process(&self, commands: &dyn Fn() -> Result<Vec<Equivalent>>) -> Result<()> {
        commands()?
            .iter()
            .for_each(|(program, args)| self.shell.command_in_process(program, args));
        Ok(())
    }

    fn make(&self, file: &Path, _work: &dyn Fn(&Path) -> Result<()>) -> Result<()> {
        std::fs::write(file, b"").with_context(|| format!("cannot write `{}`", file.display()))
    }

    fn edit(&self, _file: &Path, _work: &dyn Fn(&Path) -> Result<()>) -> Result<()> {
        Ok(())
    }
}
