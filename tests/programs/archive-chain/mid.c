#pragma omp begin declare target
int base(int x);
int mid(int x) { return base(x) + 100; }
#pragma omp end declare target
