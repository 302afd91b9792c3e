#pragma omp begin declare target
int factor = 3;
#pragma omp end declare target
