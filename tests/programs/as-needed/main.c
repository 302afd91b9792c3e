//! flags: -O1
//! shared libneeded.so: needed.c
//! shared libspare.so: spare.c
//! link: main.c -L. -Wl,--as-needed -lneeded -lspare -Wl,--no-as-needed -Wl,-rpath,$ORIGIN
//! linkers: bfd lld
//! reference: fails (the image needs libspare.so, which the program does not load)
//! expect: device 1
//! expect: 8 spare loaded 0
// Of two shared libraries with device code, only one is needed, and only that one is loaded.
#include <omp.h>
#include <stdio.h>
#include <string.h>

int needed(int x);

int main(void) {
  int host = 1, loaded = 0;
  char line[4096];
#pragma omp target map(from : host)
  host = omp_is_initial_device();
  FILE *maps = fopen("/proc/self/maps", "r");
  while (maps && fgets(line, sizeof line, maps))
    loaded |= strstr(line, "libspare.so") != NULL;
  printf("device %d\n%d spare loaded %d\n", !host, needed(4), loaded);
  return 0;
}
