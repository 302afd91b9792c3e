//! flags: -O2 -fPIC
//! linkers: bfd lld
//! expect: device 1
//! expect: 4194305 bytes, 'a' 262144 times, static local 3
// An image of more than 4 MiB, too large for a wrapper to embed in its code, and a guarded static local variable.
#include <cstdio>
#include <omp.h>

#define FOUR(x) x x x x
#define KILO(x) FOUR(FOUR(FOUR(FOUR(FOUR(x)))))

#pragma omp begin declare target
char large[] = KILO(FOUR(FOUR(FOUR(FOUR("0123456789abcdef")))));
struct Start {
  int value;
  Start() : value(1) {}
};
int count() {
  static Start start;
  return ++start.value;
}
#pragma omp end declare target

int main() {
  int host = 1, found = 0, local = 0;
#pragma omp target map(from : host, local) map(tofrom : found)
  {
    host = omp_is_initial_device();
    for (char c : large)
      found += c == 'a';
    count();
    local = count();
  }
  std::printf("device %d\n%zu bytes, 'a' %d times, static local %d\n", !host, sizeof large, found, local);
}
