#pragma omp begin declare target
int unused(int x) { return x; }
#pragma omp end declare target
