#pragma omp begin declare target
int left(int x) { return 10 * x; }
#pragma omp end declare target
