//! flags: -O2
//! expect: device 1
//! expect: count 1000 sum 500500 max 1000
// A declared reduction of a class type: its combiner and initializer are device functions.
#include <cstdio>
#include <omp.h>

#pragma omp begin declare target
struct Stats {
  int count = 0, sum = 0, max = 0;
  void add(const Stats &o) {
    count += o.count;
    sum += o.sum;
    max = o.max > max ? o.max : max;
  }
};
#pragma omp end declare target
#pragma omp declare reduction(stats : Stats : omp_out.add(omp_in)) initializer(omp_priv = Stats())

int main() {
  int host = 1;
  Stats all;
#pragma omp target map(from : host)
  host = omp_is_initial_device();
#pragma omp target teams distribute parallel for reduction(stats : all) map(tofrom : all)
  for (int i = 1; i <= 1000; ++i) {
    Stats one;
    one.count = 1;
    one.sum = one.max = i;
    all.add(one);
  }
  std::printf("device %d\ncount %d sum %d max %d\n", !host, all.count, all.sum, all.max);
}
