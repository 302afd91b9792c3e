//! Stages of a link. Each stage takes the results of earlier stages by reference and returns a new
//! value. `pipeline` calls the stages in order; read it first. Stages do not call each other,
//! except for the helpers in `SHARED` of `tests/hygiene.rs`.

pub(crate) mod device;
pub(crate) mod host;
pub(crate) mod inputs;
pub(crate) mod payload;
pub(crate) mod pipeline;
pub(crate) mod register;
pub(crate) mod reproduce;
pub(crate) mod scan;
pub(crate) mod select;

/// For the fuzz target `link_inputs`: opens `file` as a link does, expands archives and scripts,
/// scans for device images, and reads their symbols. Libraries are searched for in `folder`. Errors
/// are ignored.
#[cfg(fuzzing)]
pub fn read_input(file: std::path::PathBuf, folder: &std::path::Path) {
    use crate::args::settings::{InputName, InputSpec};
    use crate::link::inputs::search::{Naming, Search};

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
