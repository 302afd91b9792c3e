int needed(int x) {
#pragma omp target map(tofrom : x)
  x *= 2;
  return x;
}
