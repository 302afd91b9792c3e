//! flags: -O2 -pthread
//! expect: device 1
//! expect: 0 1 4 9 16 25 36 49
// Several host threads start their first regions at once, so images are loaded at the same time.
#include <cstdio>
#include <omp.h>
#include <thread>
#include <vector>

int main() {
  int host[8], out[8];
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([i, &host, &out] {
      int h = 1, square = i;
#pragma omp target map(tofrom : square) map(from : h)
      {
        h = omp_is_initial_device();
        square *= square;
      }
      host[i] = h;
      out[i] = square;
    });
  int any = 0;
  for (int i = 0; i < 8; ++i) {
    threads[i].join();
    any |= host[i];
  }
  std::printf("device %d\n", !any);
  for (int i = 0; i < 8; ++i)
    std::printf("%d%c", out[i], i == 7 ? '\n' : ' ');
}
