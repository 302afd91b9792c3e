//! link: main.c left/part.c right/part.c -save-temps --offload-jobs=2
//! reference: fails (writes both part.o's device code to one file, and links that twice)
//! expect: device 1
//! expect: left 10 right 20
// Two objects with the same name in two directories, with temporary files in the working directory.
#include <omp.h>
#include <stdio.h>

#pragma omp begin declare target
int left(int x);
int right(int x);
#pragma omp end declare target

int main(void) {
  int host = 1, l = 0, r = 0;
#pragma omp target map(from : host, l, r)
  {
    host = omp_is_initial_device();
    l = left(1);
    r = right(1);
  }
  printf("device %d\nleft %d right %d\n", !host, l, r);
  return 0;
}
