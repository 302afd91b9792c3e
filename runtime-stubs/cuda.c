/* cc -std=c11 -Wall -shared -fPIC cuda.c -o libcudart.so */

/* The registration part of libcudart. A fatbinary has images one after the other, each after its own header. */
#define RUNTIME "cuda"
#define NAME(rest) __cuda##rest
#define API(rest) cuda##rest
#define WRAPPER_MAGIC 0x466243b1u
#define HAS_END
#include "fatbin.h"

/* Reads a container as `fatbinary` writes it: a header of 16 bytes, then images, each with a header (its size is stored in it) and contents. */
static void fat_binary(int lib, const uint8_t *bytes, size_t room) {
  char words[128], what[512];
  if (!ledger_check(room >= 16, "cuda fatbinary lib=%d: no room for its header", lib) ||
      !ledger_check(ledger_u(bytes, 4) == 0xba55ed50u, "cuda fatbinary lib=%d: magic 0x%" PRIx64, lib, ledger_u(bytes, 4)))
    return;
  uint64_t version = ledger_u(bytes + 4, 2), header = ledger_u(bytes + 6, 2), size = ledger_u(bytes + 8, 8);
  ledger_check((uintptr_t)bytes % 8 == 0, "cuda fatbinary lib=%d: not 8-aligned", lib);
  ledger_check(version == 1, "cuda fatbinary lib=%d: version %" PRIu64, lib, version);
  if (!ledger_check(header >= 16 && header <= room && size <= room - header,
                    "cuda fatbinary lib=%d: header=%" PRIu64 " size=%" PRIu64 " of %zu mapped bytes", lib, header, size, room))
    return;
  uint64_t at = 0;
  int images = 0;
  for (const uint8_t *first = bytes + header; at < size; ++images) {
    const uint8_t *e = first + at;
    snprintf(words, sizeof words, "cuda image lib=%d index=%d", lib, images);
    if (!ledger_check(size - at >= 64, "%s: no room for its header", words))
      break;
    uint64_t kind = ledger_u(e, 2), own = ledger_u(e + 4, 4), length = ledger_u(e + 8, 8), compressed = ledger_u(e + 16, 4);
    if (!ledger_check(own >= 64 && own <= size - at && length <= size - at - own, "%s: header=%" PRIu64 " size=%" PRIu64, words, own,
                      length))
      break;
    if (compressed)
      snprintf(what, sizeof what, "compressed");
    else
      ledger_describe(what, sizeof what, e + own, length);
    /* The stored size includes padding to 8 bytes, which may or may not belong to an ELF file. */
    ledger_line("%s kind=%s sm=%" PRIu64 " is=%s size=%" PRIu64 " hash=%016" PRIx64, words,
                kind == 1 ? "ptx" : kind == 2 ? "elf" : "other", ledger_u(e + 28, 4), what, length, ledger_hash(e + own, length));
    ledger_check(kind == 1 || kind == 2, "%s: kind %" PRIu64, words, kind);
    ledger_check(kind != 2 || compressed || strncmp(what, "elf64-cuda-", 11) == 0 || strncmp(what, "elf32-cuda-", 11) == 0,
                 "%s: %s is no cubin", words, what);
    at += own + length;
  }
  ledger_check(images != 0, "cuda fatbinary lib=%d: no images", lib);
  ledger_check(at == size, "cuda fatbinary lib=%d: its images end at %" PRIu64 " of %" PRIu64, lib, at, size);
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

/* clang calls these if it detects a CUDA version before 9.2. */
WEAK int cudaConfigureCall() { return NO_DEVICE; }
WEAK int cudaSetupArgument() { return NO_DEVICE; }
WEAK int cudaLaunch() { return NO_DEVICE; }
