/* cc -std=c11 -Wall -shared -fPIC cuda.c -o libcudart.so */

/* The registration part of libcudart. A fatbinary has images one after the other, each after its own header. */
#define RUNTIME "cuda"
#define NAME(rest) __cuda##rest
#define API(rest) cuda##rest
#define WRAPPER_MAGIC 0x466243b1u
#define HAS_END
#define LAST_VERSION 2 /* nvcc -dlink */
#include "fatbin.h"

/* Reads a container as `fatbinary` writes it: a header of 16 bytes, then images, each with a header (its size is stored in it) and contents.
 * A prelinked one has the relocatable code of one module. */
static void fat_binary(const char *whose, const uint8_t *bytes, size_t room, int prelinked) {
  char words[128], what[512];
  if (!ledger_check(room >= 16, "cuda fatbinary %s: no room for its header", whose) ||
      !ledger_check(ledger_u(bytes, 4) == 0xba55ed50u, "cuda fatbinary %s: magic 0x%" PRIx64, whose, ledger_u(bytes, 4)))
    return;
  uint64_t version = ledger_u(bytes + 4, 2), header = ledger_u(bytes + 6, 2), size = ledger_u(bytes + 8, 8);
  ledger_check((uintptr_t)bytes % 8 == 0, "cuda fatbinary %s: not 8-aligned", whose);
  ledger_check(version == 1, "cuda fatbinary %s: version %" PRIu64, whose, version);
  if (!ledger_check(header >= 16 && header <= room && size <= room - header,
                    "cuda fatbinary %s: header=%" PRIu64 " size=%" PRIu64 " of %zu mapped bytes", whose, header, size, room))
    return;
  uint64_t at = 0;
  int images = 0;
  for (const uint8_t *first = bytes + header; at < size; ++images) {
    const uint8_t *e = first + at;
    snprintf(words, sizeof words, "cuda image %s index=%d", whose, images);
    if (!ledger_check(size - at >= 64, "%s: no room for its header", words))
      break;
    uint64_t kind = ledger_u(e, 2), own = ledger_u(e + 4, 4), length = ledger_u(e + 8, 8), compressed = ledger_u(e + 16, 4);
    if (!ledger_check(own >= 64 && own <= size - at && length <= size - at - own, "%s: header=%" PRIu64 " size=%" PRIu64, words, own,
                      length))
      break;
    const char *name = kind == 1 ? "ptx" : kind == 2 ? "elf" : kind == 8 ? "lto" : "other";
    if (compressed)
      snprintf(what, sizeof what, "compressed");
    else
      ledger_describe(what, sizeof what, e + own, length);
    /* The stored size includes padding to 8 bytes, which may or may not belong to an ELF file. */
    ledger_line("%s kind=%s sm=%" PRIu64 " is=%s size=%" PRIu64 " hash=%016" PRIx64, words, name, ledger_u(e + 28, 4), what, length,
                ledger_hash(e + own, length));
    ledger_check(kind == 1 || kind == 2 || (prelinked && kind == 8), "%s: kind %" PRIu64, words, kind);
    ledger_check(kind != 2 || compressed || strncmp(what, "elf64-cuda-", 11) == 0 || strncmp(what, "elf32-cuda-", 11) == 0,
                 "%s: %s is no cubin", words, what);
    at += own + length;
  }
  ledger_check(images != 0, "cuda fatbinary %s: no images", whose);
  ledger_check(at == size, "cuda fatbinary %s: its images end at %" PRIu64 " of %" PRIu64, whose, at, size);
}

void __cudaRegisterFatBinaryEnd(void **handle) {
  struct module *m = fatbin_module(handle, "end");
  if (!m)
    return;
  int lib = (int)(m - modules);
  fatbin_write(m);
  if (ledger_check(m->state == OPEN, "cuda end lib=%d: %s", lib, m->state == ENDED ? "a second time" : "after its unregistration"))
    m->state = ENDED;
  ledger_line("cuda end lib=%d", lib);
}

/* clang passes a size and an alignment; nvcc passes whether the variable is external, its size, and two more flags. A size is not 0. */
void __cudaRegisterManagedVar(void **handle, void **pointer, const void *initial, const char *name, size_t size_or_external,
                              size_t align_or_size, int constant, int global) {
  if ((int)size_or_external != 0) {
    fatbin_managed(handle, pointer, initial, name, size_or_external, (unsigned)align_or_size);
    return;
  }
  fatbin_row(handle, "managed", pointer, name, name, "size=%zu extern=0 constant=%d", align_or_size, constant);
  ledger_check(align_or_size != 0, "cuda managed name=%s: size 0", ledger_text(name));
  fatbin_bit("managed", name, "constant", constant);
  ledger_check(global == 0, "cuda managed name=%s: the last argument is %d", ledger_text(name), global);
  if (pointer && !*pointer && !(*pointer = calloc(1, align_or_size)))
    abort();
}

/* nvcc's code asks for a kernel by its host address, and launches that. */
WEAK int __cudaGetKernel(const void **kernel, const void *function) { return *kernel = function, 0; }
WEAK int __cudaLaunchKernel(const void *kernel, struct dim3 grid, struct dim3 block, void **args, size_t shared, void *stream) {
  return cudaLaunchKernel(kernel, grid, block, args, shared, stream);
}
WEAK char __cudaInitModule(void **handle) { return fatbin_module(handle, "init") != NULL; }

/* Only nvcc's headers have these. */
struct channel_desc {
  int x, y, z, w, kind;
};
WEAK struct channel_desc cudaCreateChannelDesc(int x, int y, int z, int w, int kind) { return (struct channel_desc){x, y, z, w, kind}; }
WEAK int cudaCreateTextureObject(unsigned long long *texture) { return *texture = 0, NO_DEVICE; }
WEAK int cudaDeviceGetAttribute(int *value) { return *value = 0, NO_DEVICE; }

/* clang calls these if it detects a CUDA version before 9.2. */
WEAK int cudaConfigureCall() { return NO_DEVICE; }
WEAK int cudaSetupArgument() { return NO_DEVICE; }
WEAK int cudaLaunch() { return NO_DEVICE; }
