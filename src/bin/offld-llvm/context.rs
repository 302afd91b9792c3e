//! LLVM context that collects diagnostics. By default, LLVM prints them and ends the process at an
//! error.

use inkwell::context::Context;
use inkwell::llvm_sys::LLVMDiagnosticSeverity::LLVMDSError;
use inkwell::llvm_sys::core::{
    LLVMContextSetDiagnosticHandler, LLVMDisposeMessage, LLVMGetDiagInfoDescription,
    LLVMGetDiagInfoSeverity,
};
use inkwell::llvm_sys::prelude::LLVMDiagnosticInfoRef;
use std::cell::RefCell;
use std::ffi::{CStr, c_void};

/// An LLVM context with the errors that LLVM has reported to it.
pub(super) struct QuietContext {
    // Declared before the errors, because it must be dropped first: its handler points to them.
    context: Context,
    errors: Box<RefCell<Vec<String>>>,
}

impl QuietContext {
    pub(super) fn new() -> Self {
        let quiet = QuietContext {
            context: Context::create(),
            errors: Box::default(),
        };
        let errors = (&raw const *quiet.errors).cast_mut().cast::<c_void>();
        #[expect(
            unsafe_code,
            reason = "LLVM's C API; the box outlives the context, and both stay on this thread"
        )]
        unsafe {
            LLVMContextSetDiagnosticHandler(quiet.context.raw(), Some(record_error), errors);
        }
        quiet
    }

    /// LLVM's context.
    pub(super) fn llvm(&self) -> &Context {
        &self.context
    }

    /// Returns the first reported error, if there is one.
    pub(super) fn error(&self) -> Option<String> {
        self.errors.borrow().first().cloned()
    }
}

extern "C" fn record_error(info: LLVMDiagnosticInfoRef, errors: *mut c_void) {
    #[expect(
        unsafe_code,
        reason = "LLVM passes the pointer from `new`; the description is a C string that this function frees"
    )]
    unsafe {
        if LLVMGetDiagInfoSeverity(info) != LLVMDSError {
            return;
        }
        let text = LLVMGetDiagInfoDescription(info);
        let errors = &*errors.cast_const().cast::<RefCell<Vec<String>>>();
        // Nothing else borrows the list while LLVM runs; `try_borrow_mut` because a panic must not
        // unwind into LLVM.
        if let Ok(mut errors) = errors.try_borrow_mut() {
            errors.push(CStr::from_ptr(text).to_string_lossy().into_owned());
        }
        LLVMDisposeMessage(text);
    }
}
