#pragma omp begin declare target
int part(int x) { return x + 1000; } // not this one
#pragma omp end declare target
