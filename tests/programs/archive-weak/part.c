#pragma omp begin declare target
int part(void) { return 1; }
#pragma omp end declare target
