//! Declarations of the C kernels.

#[allow(dead_code, reason = "the library uses only one of them")]
extern "C" {
    pub fn scale(count: i32, by: i32, values: *mut i32) -> i32;
    pub fn sum(count: i32, values: *const i32, result: *mut i32) -> i32;
}
