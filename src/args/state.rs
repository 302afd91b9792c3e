//! Linker options that change the treatment of later inputs, such as `--whole-archive`. Each input
//! gets a copy of the state at its position, so no later stage has to read these options
//! (docs/spec/faults.md F4, F6, F18).

use std::path::PathBuf;

use super::settings::{InputName, InputSpec, InputState};
use super::{Arg, ArgKind, Id};

/// Tracks the state from left to right along the arguments.
pub(super) struct Walk {
    /// The state after the last step.
    pub state: InputState,
    pushed: Vec<InputState>,
    groups: usize,
}

impl Walk {
    /// The state before the first argument. link.exe's `/wholearchive` applies to the whole command
    /// line at any position.
    pub(super) fn new(args: &[Arg]) -> Walk {
        let whole_archive = args
            .iter()
            .any(|arg| arg.id() == Some(Id::LinkWholeArchive) && arg.value.is_none());
        Walk {
            state: InputState {
                whole_archive,
                ..InputState::default()
            },
            pushed: Vec::new(),
            groups: 0,
        }
    }

    /// Applies one argument.
    pub(super) fn step(&mut self, arg: &Arg) {
        let state = &mut self.state;
        match arg.id() {
            Some(Id::WholeArchive) => state.whole_archive = true,
            Some(Id::NoWholeArchive) => state.whole_archive = false,
            Some(Id::StartLib) => state.lazy = true,
            Some(Id::EndLib) => state.lazy = false,
            Some(Id::Static | Id::Bstatic) => state.prefer_static = true,
            Some(Id::Bdynamic) => state.prefer_static = false,
            Some(Id::AsNeeded) => state.as_needed = true,
            Some(Id::NoAsNeeded) => state.as_needed = false,
            Some(Id::Format) => {
                state.binary = arg.value.as_ref().is_some_and(|format| format == "binary")
            }
            Some(Id::StartGroup) => {
                state.group = Some(self.groups);
                self.groups += 1;
            }
            Some(Id::EndGroup) => state.group = None,
            Some(Id::PushState) => self.pushed.push(*state),
            // GNU ld and lld both save these three and nothing else. The linker reports a
            // --pop-state without a --push-state.
            Some(Id::PopState) => {
                if let Some(saved) = self.pushed.pop() {
                    state.whole_archive = saved.whole_archive;
                    state.prefer_static = saved.prefer_static;
                    state.as_needed = saved.as_needed;
                }
            }
            _ => {}
        }
    }
}

/// Returns the input that an argument adds to the link.
pub(super) fn input(arg: &Arg, state: InputState) -> Option<InputSpec> {
    let value = arg.value.as_ref()?;
    let (name, whole_archive) = match arg.kind {
        ArgKind::Known(row) if row.id == Id::Library => {
            (InputName::Library(value.clone()), state.whole_archive)
        }
        // `/wholearchive:lib` names the library and links all of it.
        ArgKind::Known(_) => (InputName::File(PathBuf::from(value)), true),
        _ => (InputName::File(PathBuf::from(value)), state.whole_archive),
    };
    Some(InputSpec {
        name,
        state: InputState {
            whole_archive,
            ..state
        },
        token: arg.tokens.start,
    })
}
