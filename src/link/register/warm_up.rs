//! LLVM made ready while device links run: its code is read in and its tables are made when the first module is compiled, which takes
//! longer than compiling ours. So a module without images is compiled beside the device links, and forgotten.

use std::sync::OnceLock;
use std::thread::JoinHandle;

use crate::llvm;
use crate::model::Generation;
use crate::registration::{Images, Plan};

/// LLVM, to be made ready for a host.
pub struct WarmUp {
    triple: String,
    thread: OnceLock<Option<JoinHandle<()>>>,
}

impl WarmUp {
    /// For the host `triple`; nothing happens yet.
    pub fn new(triple: &str) -> Self {
        WarmUp { triple: triple.to_owned(), thread: OnceLock::new() }
    }

    /// Begins, once.
    pub fn start(&self) {
        self.thread.get_or_init(|| {
            let host_triple = self.triple.clone();
            let work = move || {
                let images = Images::OpenMp(Vec::new());
                let plan = Plan { host_triple, generation: Generation::Llvm21, images, relocatable: false };
                // What is wrong with it, the real one meets again.
                let _ = llvm::compile(&plan);
            };
            // Without a thread it is only slower.
            std::thread::Builder::new().spawn(work).ok()
        });
    }
}

impl Drop for WarmUp {
    /// LLVM must not be at work when the process ends.
    fn drop(&mut self) {
        if let Some(Some(thread)) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
