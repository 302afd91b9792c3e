#pragma omp begin declare target
int part(int x) { return x + 2; }
#pragma omp end declare target
