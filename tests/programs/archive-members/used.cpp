#pragma omp begin declare target
extern int factor;
int used(int x) { return factor * x; }
#pragma omp end declare target
