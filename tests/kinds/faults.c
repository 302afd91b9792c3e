/* Invalid registration calls without device code, which the stubs must report. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct wrapper {
  uint32_t magic, version;
  const void *data;
  const void *prelinked;
};
#define DECLARE(runtime)                                                                                                             \
  void **__##runtime##RegisterFatBinary(const struct wrapper *);                                                                     \
  void __##runtime##UnregisterFatBinary(void **);                                                                                    \
  int __##runtime##RegisterFunction(void **, const void *, const char *, const char *, int, void *, void *, void *, void *, int *);   \
  void __##runtime##RegisterVar(void **, void *, const char *, const char *, int, size_t, int, int);                                 \
  void __##runtime##RegisterManagedVar(void **, void **, const void *, const char *, size_t, unsigned);                              \
  void __##runtime##RegisterSurface(void **, const void *, const char *, const char *, int, int);                                    \
  void __##runtime##RegisterTexture(void **, const void *, const char *, const char *, int, int, int);
DECLARE(cuda)
DECLARE(hip)
void __cudaRegisterFatBinaryEnd(void **);
int cudaMemcpyToSymbol(const void *);
void __sycl_register_lib(void *);
void __sycl_unregister_lib(void *);

static uint64_t fat[64] __attribute__((aligned(4096)));
static const void *const twice[] = {fat, fat, NULL}, *const none[] = {NULL};
static const struct wrapper good = {0x466243b1, 1, fat, NULL}, bad = {0x48495046, 3, fat, fat}, hip_good = {0x48495046, 1, fat, NULL},
                            without_list = {0x466243b1, 2, fat, NULL}, with_twice = {0x466243b1, 2, fat, twice},
                            with_none = {0x466243b1, 2, fat, none};

static uint64_t entries[7] = {0, 8ull << 16 | 1, (uintptr_t)0, 0, 4};
static struct {
  uint16_t version;
  uint8_t kind, image_kind;
  const char *target, *options[2];
  const void *start, *end, *entries[2], *properties[2];
} images[2] = {{3, 4, 0, "", {NULL, ""}, fat, fat + 4, {entries, entries + 7}, {fat, NULL}}, {2, 8}};
static struct {
  uint16_t version, images;
  const void *list, *entries[2];
} description = {2, 2, images, {entries, NULL}};

int main() {
  int a, b;
  void *pointer = NULL;

  /* A complete image header for data that is not a cubin, and then a second header with a size past the end. */
  uint64_t header[] = {0x00100001ba55ed50, 64 + 8 + 64, 0x0000004001010002, 8, 0, 80ull << 32};
  memcpy(fat, header, sizeof header);
  uint64_t second[] = {0x0000004001010003, 8};
  memcpy(fat + 2 + 9, second, sizeof second);
  void **handle = __cudaRegisterFatBinary(&good);
  void **again = __cudaRegisterFatBinary(&good);
  __cudaRegisterFatBinary(&bad);
  __cudaRegisterFatBinary(&without_list);
  __cudaRegisterFatBinary(&with_twice);
  __cudaRegisterFatBinary(&with_none);
  __cudaRegisterFunction(handle, &a, "other", "kernel", 0, &a, NULL, NULL, NULL, NULL);
  __cudaRegisterFunction(handle, NULL, "null", "null", -1, NULL, NULL, NULL, NULL, NULL);
  __cudaRegisterFunction(handle, &b, "kernel", "kernel", -1, NULL, NULL, NULL, NULL, NULL);
  __cudaRegisterVar(handle, &a, "variable", "variable", 2, 0, -1, 1);
  __cudaRegisterManagedVar(handle, NULL, &a, "managed", 8, 8);
  __cudaRegisterManagedVar(handle, &pointer, &a, "managed_align", 4, 3);
  __cudaRegisterSurface(handle, images, "surface", "surface", 1, 8);
  __cudaRegisterTexture(handle, entries, "texture", "texture", 1, 32, 8);
  __cudaRegisterFatBinaryEnd(handle);
  __cudaRegisterFatBinaryEnd(handle);
  __cudaRegisterVar(handle, header, "late", "late", 0, 4, 0, 0);
  cudaMemcpyToSymbol(second);
  __cudaUnregisterFatBinary(&pointer);
  __cudaUnregisterFatBinary(handle);
  __cudaUnregisterFatBinary(handle);
  __cudaUnregisterFatBinary(again);

  __hipRegisterFatBinary(&hip_good); /* the contents are CUDA's */
  memset(fat, 0, sizeof fat);
  memcpy(fat, "__CLANG_OFFLOAD_BUNDLE__\2\0\0\0\0\0\0\0\10\0\0\0\0\0\0\0\4\0\0\0\0\0\0\0\4\0\0\0\0\0\0\0hip-\10\0\0\0\0\0\0\0\4\0\0\0\0\0\0\0\4\0\0\0\0\0\0\0hip-", 88);
  handle = __hipRegisterFatBinary(&hip_good);
  __hipUnregisterFatBinary(handle);

  __sycl_register_lib(&description);
  __sycl_unregister_lib(&a);
}
