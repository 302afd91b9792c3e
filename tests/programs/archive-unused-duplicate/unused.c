#pragma omp begin declare target
int nine(void) { return 10; }
int used(int x) { return x + nine() - 10; } // same as in used.c, which comes first
#pragma omp end declare target
