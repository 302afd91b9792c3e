#pragma omp begin declare target
int one(int n);
int two(int n) { return n < 1 ? 1 : n * one(n - 1); }
#pragma omp end declare target
