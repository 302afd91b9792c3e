//! A shared library for C: `ten_times_sum`.

mod kernels;

/// Ten times the sum of the first `count` of `values`, or -1 where that was not computed on the device.
///
/// # Safety
/// There are as many.
#[no_mangle]
pub unsafe extern "C" fn ten_times_sum(count: i32, values: *const i32) -> i32 {
    let mut result = 0;
    if kernels::sum(count, values, &mut result) == 0 { 10 * result } else { -1 }
}
