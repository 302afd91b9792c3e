#pragma omp begin declare target
static int square(int x) { return 10 * x; }
#pragma omp end declare target

int right(int x) {
#pragma omp target map(tofrom : x)
  x = square(x);
  return x;
}
