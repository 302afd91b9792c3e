#pragma omp begin declare target
int used;
int part(int x) { return ++used, x + 1; }
#pragma omp end declare target
