#pragma omp begin declare target
int right(int x) { return 20 * x; }
#pragma omp end declare target
