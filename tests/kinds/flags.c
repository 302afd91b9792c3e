/* Entries that clang never creates: every flag of variables, surfaces and textures, and unrelated kinds. Plain C, without device code.
 * KIND is 2 for CUDA and 4 for HIP. With OLD, the table is that of LLVM 15 to 19, which has no kinds, in the section SECTION. */
#ifdef OLD
struct entry {
  void *address;
  const char *name;
  unsigned long size;
  int flags, data;
};
#define ALIGN 1
#define ROW(symbol, kind, flags, size, data) {object_##symbol, #symbol, size, flags, data}
#else
#define SECTION "llvm_offload_entries"
struct entry {
  unsigned long reserved;
  unsigned short version, kind;
  unsigned flags;
  void *address;
  const char *name;
  unsigned long size, data;
  void *aux;
};
#define ALIGN 8
#define ROW(symbol, kind, flags, size, data) {0, 1, kind, flags, object_##symbol, #symbol, size, data, 0}
#endif
#define ENTRY(symbol, kind, flags, size, data)                                                                                       \
  static char object_##symbol[8];                                                                                                    \
  __attribute__((section(SECTION), used, aligned(ALIGN))) static const struct entry entry_##symbol =                                 \
      ROW(symbol, kind, flags, size, data)

enum { SURFACE = 2, TEXTURE = 3, EXTERN = 8, CONSTANT = 16, NORMALIZED = 32 };

ENTRY(var_extern, KIND, EXTERN, 8, 0);
ENTRY(var_extern_constant, KIND, EXTERN | CONSTANT, 8, 0);
ENTRY(var_large, KIND, 0, 0x100000001, 0);
ENTRY(surface_extern, KIND, SURFACE | EXTERN, 4, 3);
ENTRY(texture_extern, KIND, TEXTURE | EXTERN, 4, 7);
ENTRY(texture_extern_normalized, KIND, TEXTURE | EXTERN | NORMALIZED, 4, 1);
ENTRY(type_that_is_none, KIND, 4, 4, 0);
ENTRY(kernel_by_size, KIND, SURFACE, 0, 0);
#ifndef OLD
ENTRY(kind_of_the_other, 6 - KIND, 0, 8, 0);
ENTRY(kind_both, 6, 0, 8, 0);
ENTRY(kind_sycl, 8, 0, 0, 0);
#endif
