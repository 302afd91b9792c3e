#pragma omp begin declare target
int base(int x) { return x; }
#pragma omp end declare target
