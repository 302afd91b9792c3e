//! The kernels as C declares them.

#[allow(dead_code, reason = "the library has one of them alone")]
extern "C" {
    pub fn scale(count: i32, by: i32, values: *mut i32) -> i32;
    pub fn sum(count: i32, values: *const i32, result: *mut i32) -> i32;
}
