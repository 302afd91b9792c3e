//! Reads a link input from end to end, for the fuzz target `link_inputs`. This module is compiled
//! only with `--cfg fuzzing`, which cargo-fuzz sets.

use std::path::{Path, PathBuf};

use crate::args::settings::{InputName, InputSpec};
use crate::link::inputs::search::{Naming, Search};
use crate::link::{inputs, scan};

/// Opens `file` as a link does, expands archives and scripts, scans for device images, and reads
/// their symbols. Libraries are searched for in `folder`. Errors are ignored.
pub fn read_input(file: PathBuf, folder: &Path) {
    let spec = InputSpec::requested(InputName::File(file));
    let search = Search::new(&[folder.to_path_buf()], Some(folder), Naming::Unix, "none");
    let Ok(inputs) = inputs::open(&[spec], &search, &mut |_, _| {}) else {
        return;
    };
    if let Ok(found) = scan::scan(&inputs) {
        for image in found.iter().take(16) {
            let _ = scan::device_symbols(image);
        }
    }
    let _ = scan::host_facts(&inputs, true);
    scan::shared_symbols(&inputs);
    scan::default_libraries(&inputs);
}
