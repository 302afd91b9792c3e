//! A shared library for C: `ten_times_sum`.

mod kernels;

/// Returns ten times the sum of the first `count` of `values`, or -1 if the device did not compute
/// it.
///
/// # Safety
/// `values` must have at least `count` elements.
#[no_mangle]
pub unsafe extern "C" fn ten_times_sum(count: i32, values: *const i32) -> i32 {
    let mut result = 0;
    if kernels::sum(count, values, &mut result) == 0 { 10 * result } else { -1 }
}
