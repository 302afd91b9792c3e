// What the parts of this program share. Under declare target there is one of each on the host and one on the device.
#pragma once

enum { side = 64 };

#pragma omp begin declare target
extern int hot;            // grid.cpp
extern long steps_done;    // grid.cpp; counts on the device
int neighbours(const int *grid, int row, int column); // grid.cpp, called from the kernel in step.cpp
int clamp_to_hot(int value);                          // stats/clamp.cpp, in libstats.a
#pragma omp end declare target

void step(int *grid, int *next); // step.cpp
long sum(const int *grid);       // stats/sum.cpp, in libstats.a
int smooth(int *grid);           // filter/smooth.cpp, in libfilter.so; returns how often its device code was used
