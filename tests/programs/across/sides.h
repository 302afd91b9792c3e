#pragma once
#pragma omp begin declare target
extern int calls;
int left(int n);
int right(int n);
#pragma omp end declare target
