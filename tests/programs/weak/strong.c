#pragma omp begin declare target
int overridden(void) { return 2; }
int limit = 99;
#pragma omp end declare target
