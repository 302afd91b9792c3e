#pragma omp begin declare target
int unused(int x) { return x; }
#pragma omp end declare target
int unused_kernel() {
  int x = 0;
#pragma omp target map(from : x)
  x = unused(1);
  return x;
}
