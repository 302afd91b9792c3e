//! The devices that `--for` names, and those of this machine.

use anyhow::Result;

use crate::error::Error;
use crate::model::{OffloadKind, printable};
use crate::sys::native::{self, Machine};
use crate::target::device::{Device, Wanted};

/// Devices that an image is looked for.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    /// As the user named them.
    pub text: String,
    /// Whether they are those of this machine; then one that runs a file is enough.
    pub native: bool,
    /// The devices.
    pub devices: Vec<Wanted>,
}

impl Asked {
    /// The devices that `text` names: `gfx90a:xnack+`, `cuda:sm_90`, `native`.
    ///
    /// # Errors
    /// It names no device, or a GPU of this machine where there is none.
    pub(crate) fn parse(text: &str) -> Result<Asked> {
        let native = match text.rsplit_once(':') {
            None if text == "native" => Some(None),
            Some((kind, "native")) => OffloadKind::ALL
                .into_iter()
                .find(|known| known.name() == kind)
                .map(Some),
            _ => None,
        };
        let devices = match native {
            Some(kind) => here(kind, text)?,
            None => vec![Wanted::parse(text)?],
        };
        Ok(Asked {
            text: text.to_owned(),
            native: native.is_some(),
            devices,
        })
    }
}

/// The devices of this machine that `kind` drives; an error where that means a GPU, and there is
/// none.
fn here(kind: Option<OffloadKind>, text: &str) -> Result<Vec<Wanted>> {
    let machine = Machine::read(&native::root())?;
    let mut all = Vec::new();
    for name in machine
        .amd
        .iter()
        .chain(&machine.nvidia)
        .chain([&machine.cpu])
    {
        let mut wanted = Wanted {
            kind,
            ..Wanted::parse(name)?
        };
        if let Device::Nvidia { driver, .. } = &mut wanted.device {
            *driver = machine.driver;
        }
        if kind.is_none_or(|kind| wanted.device.kinds().contains(&kind)) {
            all.push(wanted);
        }
    }
    if all.is_empty() {
        return Err(Error::usage(format!(
            "`{}`: no matching GPU on this machine",
            printable(text)
        ))
        .into());
    }
    Ok(all)
}
