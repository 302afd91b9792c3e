#pragma omp begin declare target
int part(int x) { return x; }
#pragma omp end declare target
