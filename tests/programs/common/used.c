#pragma omp begin declare target
int nine(void);
int used(int x) { return x + nine(); }
#pragma omp end declare target
