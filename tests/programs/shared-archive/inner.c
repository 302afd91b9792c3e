#pragma omp begin declare target
int inner(int x) { return 3 * x; }
#pragma omp end declare target
