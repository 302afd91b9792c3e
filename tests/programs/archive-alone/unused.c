#pragma omp begin declare target
int unused(int x) { return x + 1; }
#pragma omp end declare target
