#include "../grid.h"

#pragma omp begin declare target
int clamp_to_hot(int value) { return value < hot ? value : hot; }
#pragma omp end declare target
