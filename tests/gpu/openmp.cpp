// Tests OpenMP on a GPU: a reduction and a map, with checks of the results. Exit status as in main.cpp.
#include <cstdio>
#include <omp.h>

int main() {
  if (omp_get_num_devices() == 0) {
    std::printf("no device: omp_get_num_devices() is 0\n");
    return 77;
  }
  constexpr int count = 10000;
  static int numbers[count];
  long sum = 0;
  int on_host = 1;
#pragma omp target teams distribute parallel for map(from : numbers) map(tofrom : sum) reduction(+ : sum)
  for (int i = 0; i < count; ++i) {
    numbers[i] = 3 * i + 1;
    sum += numbers[i];
  }
#pragma omp target map(from : on_host)
  on_host = omp_is_initial_device();
  for (int i = 0; i < count; ++i)
    if (numbers[i] != 3 * i + 1) {
      std::printf("number %d is %d\n", i, numbers[i]);
      return 1;
    }
  if (on_host || sum != 3L * count * (count - 1) / 2 + count) {
    std::printf("sum %ld, %s\n", sum, on_host ? "on the host" : "on a device");
    return 1;
  }
  std::printf("right: %d numbers, sum %ld\n", count, sum);
}
