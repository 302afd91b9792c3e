#pragma omp begin declare target
static int square(int x) { return x * x; }
#pragma omp end declare target

int left(int x) {
#pragma omp target map(tofrom : x)
  x = square(x);
  return x;
}
