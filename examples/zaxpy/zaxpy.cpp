// The ZAXPY of LLVM's "Offloading Design & Internals", with checks of its results: Y = D * X + Y for complex vectors.
#include <complex>
#include <cstddef>
#include <cstdio>
#include <omp.h>

using complex = std::complex<double>;

void zaxpy(complex *X, complex *Y, complex D, std::size_t N) {
#pragma omp target teams distribute parallel for
  for (std::size_t i = 0; i < N; ++i)
    Y[i] = D * X[i] + Y[i];
}

int main() {
  const std::size_t N = 1024;
  complex X[N], Y[N], D{2, -1};
  for (std::size_t i = 0; i < N; ++i) {
    X[i] = {double(i), 1};
    Y[i] = {1, double(i)};
  }
#pragma omp target data map(to : X[0 : N]) map(tofrom : Y[0 : N])
  zaxpy(X, Y, D, N);

  int host = 1;
#pragma omp target map(from : host)
  host = omp_is_initial_device();

  bool right = !host;
  for (std::size_t i = 0; i < N; ++i) // (2 - i)(k + i) + (1 + ki) = (2k + 2) + 2i, exact in floating point
    right = right && Y[i] == complex(2.0 * double(i) + 2, 2);
  std::printf("omp_is_initial_device() = %d\n%s\n", host, right ? "right" : "wrong");
  return right ? 0 : 1;
}
