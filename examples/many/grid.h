// Declarations shared by the parts of this program. Each declare target variable exists once on the host and once on the device.
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
int smooth(int *grid);           // filter/smooth.cpp, in libfilter.so; returns how many times its device code has run
