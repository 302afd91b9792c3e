#pragma omp begin declare target
int nowhere(int x);
int unused(int x) { return nowhere(x); }
#pragma omp end declare target
