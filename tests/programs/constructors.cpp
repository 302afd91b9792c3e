//! flags: -O1
//! expect: device 1
//! expect: made on device: 1, value 43
//! expect: host value 42
//! expect: destroyed 1
// Constructors and destructors of declare target globals run on the device when its image is loaded and unloaded.
#include <cstdio>
#include <omp.h>

#pragma omp begin declare target
int made_here;
struct Thing {
  int value;
  Thing() : value(42) { ++made_here; }
  ~Thing() {
    if (value == 43) // only the device's copy has changed
      std::printf("destroyed %d\n", made_here);
  }
};
Thing thing;
#pragma omp end declare target

int main() {
  int host = 1, made = 0, value = 0;
#pragma omp target map(from : host, made, value)
  {
    host = omp_is_initial_device();
    ++thing.value;
    made = made_here;
    value = thing.value;
  }
  std::printf("device %d\nmade on device: %d, value %d\nhost value %d\n", !host, made, value, thing.value);
}
