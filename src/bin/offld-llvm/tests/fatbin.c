/* Prints what a program registers, as the CUDA runtime (-DCUDA) or HIP's (-DHIP) would see it. The program is this one: it brings
   entries in the section TABLE, of 56 bytes and the kind KIND, or without KIND of 32 bytes; -DMIXED: and one of another kind. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef HIP
#define RUNTIME(name) __hip##name
enum { PAGE = 4096 };
#else
#define RUNTIME(name) __cuda##name
enum { PAGE = 16 };
#endif

static int object, other;

#ifdef KIND
struct entry {
  uint64_t reserved;
  uint16_t version, kind;
  uint32_t flags;
  void *addr;
  const char *name;
  uint64_t size, data;
  void *aux;
};
#define ENTRY(kind, name, size, flags, data) {0, 1, kind, flags, &object, name, size, data, &other}
#else
#define KIND 0
struct entry {
  void *addr;
  const char *name;
  size_t size;
  int32_t flags, data;
};
#define ENTRY(kind, name, size, flags, data) {&object, name, size, flags, data}
#endif

__attribute__((section(TABLE), used, aligned(8))) static const struct entry entries[] = {
  ENTRY(KIND, "kernel", 0, 0, 0),
#ifdef MIXED
  ENTRY(1, "openmp", 4, 0, 0),
#endif
  ENTRY(KIND, "variable", 4, 0, 0),
  ENTRY(KIND, "fixed", 8, 0x18, 0),
  ENTRY(KIND, "managed", 4, 1, 16),
  ENTRY(KIND, "surface", 4, 2 | 8, 2),
  ENTRY(KIND, "texture", 4, 3 | 32, 3),
  ENTRY(KIND, "unheard of", 4, 7, 0),
};

struct wrapper { uint32_t magic, version; const char *data; void *unused; };
static int handle;

static const char *which(void *address) {
  return address == &object ? "addr" : address == &other ? "aux" : "BAD";
}

static void check(void **given, const char *name, const char *again) {
  if ((int *)given != &handle || name != again) puts("BAD");
}

void **RUNTIME(RegisterFatBinary)(struct wrapper *wrapper) {
  printf("binary %x %u %.8s at %d\n", wrapper->magic, wrapper->version, wrapper->data, (int)((uintptr_t)wrapper->data % PAGE));
  return (void **)&handle;
}

void RUNTIME(RegisterFatBinaryEnd)(void **given) {
  check(given, "", "");
  puts("end");
}

void RUNTIME(UnregisterFatBinary)(void **given) {
  check(given, "", "");
  puts("unregister");
}

int RUNTIME(RegisterFunction)(void **given, void *host, char *device, const char *name, int threads, void *tid, void *bid,
                              void *block, void *grid, int *warp) {
  check(given, device, name);
  printf("function %s %s\n", name, which(host));
  if (threads != -1 || tid || bid || block || grid || warp) puts("BAD");
  return 0;
}

void RUNTIME(RegisterVar)(void **given, void *host, char *device, const char *name, int external, size_t size, int constant,
                          int global) {
  check(given, device, name);
  printf("var %s %s extern %d size %zu constant %d\n", name, which(host), external, size, constant);
  if (global) puts("BAD");
}

void RUNTIME(RegisterManagedVar)(void **given, void **pointer, void *host, const char *name, size_t size, unsigned align) {
  check(given, name, name);
  printf("managed %s %s %s size %zu align %u\n", name, which(pointer), which(host), size, align);
}

void RUNTIME(RegisterSurface)(void **given, void *host, void *device, const char *name, int type, int external) {
  check(given, device, name);
  printf("surface %s %s type %d extern %d\n", name, which(host), type, external);
}

void RUNTIME(RegisterTexture)(void **given, void *host, void *device, const char *name, int type, int normalized, int external) {
  check(given, device, name);
  printf("texture %s %s type %d normalized %d extern %d\n", name, which(host), type, normalized, external);
}

int main(void) {
  puts("main");
  return 0;
}
