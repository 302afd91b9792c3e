//! A program that runs both kernels.

mod kernels;

fn main() {
    let mut values = [1, 2, 3, 4];
    let mut result = 0;
    let on_host = unsafe { kernels::scale(4, 10, values.as_mut_ptr()) + kernels::sum(4, values.as_ptr(), &mut result) };
    println!("{} {} {result} on the {}", values[0], values[3], if on_host == 0 { "device" } else { "host" });
}
