#pragma omp begin declare target
int part(int x) { return x + 1000; } // must not be linked
#pragma omp end declare target
