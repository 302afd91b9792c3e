//! Calls two OpenMP kernels and checks their results, and that they ran on the device.

use std::process::ExitCode;

unsafe extern "C" {
    fn kernel_axpy(a: f64, x: *const f64, y: *mut f64, n: usize) -> u64;
    fn kernel_dot(x: *const f64, y: *const f64, n: usize) -> f64;
}

/// Computes `y += a * x`. Returns how many times the device has run it, or 0 if it ran on the host.
fn axpy(a: f64, x: &[f64], y: &mut [f64]) -> u64 {
    assert_eq!(x.len(), y.len());
    // SAFETY: both slices are `x.len()` long, and the kernel keeps no pointer.
    unsafe { kernel_axpy(a, x.as_ptr(), y.as_mut_ptr(), x.len()) }
}

fn dot(x: &[f64], y: &[f64]) -> f64 {
    assert_eq!(x.len(), y.len());
    // SAFETY: both slices are `x.len()` long, and the kernel keeps no pointer.
    unsafe { kernel_dot(x.as_ptr(), y.as_ptr(), x.len()) }
}

fn main() -> ExitCode {
    const N: usize = 1000;
    let x: Vec<f64> = (0..N).map(|i| i as f64).collect();
    let mut y = vec![1.0; N];
    let calls = [axpy(2.0, &x, &mut y), axpy(3.0, &x, &mut y)];

    // Whole numbers below 2^53, so sums are exact in any order.
    let right = calls == [1, 2]
        && y.iter().enumerate().all(|(i, &v)| v == 5.0 * i as f64 + 1.0)
        && dot(&x, &y) == x.iter().map(|v| v * (5.0 * v + 1.0)).sum::<f64>();
    println!("on the device: {}", if calls[0] == 0 { "no" } else { "yes" });
    println!("y[999] = {}, x.y = {}", y[999], dot(&x, &y));
    println!("{}", if right { "right" } else { "wrong" });
    if right { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
