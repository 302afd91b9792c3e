// The kernels, with a C interface for Rust. build.rs compiles them into an archive with a fat object.
#include <cstddef>
#include <cstdint>
#include <omp.h>

#pragma omp begin declare target
static std::uint64_t calls = 0;
#pragma omp end declare target

extern "C" {

// y = a * x + y. Returns how many times the device has run it, or 0 if it ran on the host.
std::uint64_t kernel_axpy(double a, const double *x, double *y, std::size_t n) {
#pragma omp target teams distribute parallel for map(to : x[0 : n]) map(tofrom : y[0 : n])
  for (std::size_t i = 0; i < n; ++i)
    y[i] += a * x[i];

  std::uint64_t count = 0;
#pragma omp target map(from : count)
  count = omp_is_initial_device() ? 0 : ++calls;
  return count;
}

double kernel_dot(const double *x, const double *y, std::size_t n) {
  double sum = 0;
#pragma omp target teams distribute parallel for reduction(+ : sum) map(to : x[0 : n], y[0 : n])
  for (std::size_t i = 0; i < n; ++i)
    sum += x[i] * y[i];
  return sum;
}
}
