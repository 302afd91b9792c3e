#pragma omp begin declare target
int part(int x) { return 2 * x; }
int dead_part(int x) { return part(x); }
#pragma omp end declare target
int dead_kernel() {
  int x = 0;
#pragma omp target map(from : x)
  x = dead_part(1);
  return x;
}
