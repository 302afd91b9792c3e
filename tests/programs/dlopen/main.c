//! flags: -O2
//! shared plugin.so: plugin.c
//! link: main.c -ldl
//! linkers: bfd lld
//! expect: device 1
//! expect: plugin 1 value 9
//! expect: plugin 1 value 9
// A library registers its image when it is opened and unregisters it when it is closed, twice. The program has an image, too.
#include <dlfcn.h>
#include <omp.h>
#include <stdio.h>

int main(void) {
  int host = 1;
#pragma omp target map(from : host)
  host = omp_is_initial_device();
  printf("device %d\n", !host);
  for (int i = 0; i < 2; ++i) {
    void *plugin = dlopen("./plugin.so", RTLD_NOW | RTLD_LOCAL);
    if (!plugin) {
      printf("%s\n", dlerror());
      return 1;
    }
    int (*run)(int, int *) = (int (*)(int, int *))dlsym(plugin, "run");
    int value = run(3, &host);
    printf("plugin %d value %d\n", !host, value);
    dlclose(plugin);
  }
  return 0;
}
