/* Entries that clang never makes: every flag of variables, surfaces and textures, and kinds that are not ours. Rows for a table of LLVM
 * 21 and later; KIND is 2 for CUDA, 4 for HIP. Plain C, without device code. */
struct entry {
  unsigned long long reserved;
  unsigned short version, kind;
  unsigned flags;
  void *address;
  const char *name;
  unsigned long long size, data;
  void *aux;
};
#define ENTRY(symbol, kind, flags, size, data)                                                                                       \
  static char object_##symbol[8];                                                                                                    \
  __attribute__((section("llvm_offload_entries"), used, aligned(8))) static const struct entry entry_##symbol = {                    \
      0, 1, kind, flags, object_##symbol, #symbol, size, data, 0}

enum { SURFACE = 2, TEXTURE = 3, EXTERN = 8, CONSTANT = 16, NORMALIZED = 32 };

ENTRY(var_extern, KIND, EXTERN, 8, 0);
ENTRY(var_extern_constant, KIND, EXTERN | CONSTANT, 8, 0);
ENTRY(var_large, KIND, 0, 0x100000001, 0);
ENTRY(surface_extern, KIND, SURFACE | EXTERN, 4, 3);
ENTRY(texture_extern, KIND, TEXTURE | EXTERN, 4, 7);
ENTRY(texture_extern_normalized, KIND, TEXTURE | EXTERN | NORMALIZED, 4, 1);
ENTRY(type_that_is_none, KIND, 4, 4, 0);
ENTRY(kernel_by_size, KIND, SURFACE, 0, 0);
ENTRY(kind_of_the_other, 6 - KIND, 0, 8, 0);
ENTRY(kind_both, 6, 0, 8, 0);
ENTRY(kind_sycl, 8, 0, 0, 0);
