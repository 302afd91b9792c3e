#pragma omp begin declare target
int two(int n);
int one(int n) { return n < 1 ? 1 : n * two(n - 1); }
#pragma omp end declare target
