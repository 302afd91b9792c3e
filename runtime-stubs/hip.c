/* cc -std=c11 -Wall -shared -fPIC hip.c -o libamdhip64.so */

/* The registration part of libamdhip64. Its fat binaries are offload bundles, compressed or not. */
#define RUNTIME "hip"
#define NAME(rest) __hip##rest
#define API(rest) hip##rest
#define WRAPPER_MAGIC 0x48495046u /* FPIH */
#define LAST_VERSION 1
#include "kpack.h"

#include "fatbin.h"

static const char bundle_magic[] = "__CLANG_OFFLOAD_BUNDLE__";

static void compressed_bundle(const char *whose, const uint8_t *bytes, size_t room) {
  static const char *const methods[] = {"zlib", "zstd"};
  uint64_t version = ledger_u(bytes + 4, 2), method = ledger_u(bytes + 6, 2);
  uint64_t size = version >= 3 ? ledger_u(bytes + 8, 8) : version == 2 ? ledger_u(bytes + 8, 4) : room; /* version 1 stores no size */
  if (!ledger_check(version >= 1 && version <= 3, "hip bundle %s: compressed, version %" PRIu64, whose, version) ||
      !ledger_check(method < 2, "hip bundle %s: compression method %" PRIu64, whose, method) ||
      !ledger_check(size > 24 && size <= room, "hip bundle %s: %" PRIu64 " compressed bytes of %zu mapped ones", whose, size, room))
    return;
  if (version == 1)
    ledger_line("hip bundle %s compressed=%s version=1", whose, methods[method]);
  else
    ledger_line("hip bundle %s compressed=%s version=%" PRIu64 " size=%" PRIu64 " hash=%016" PRIx64, whose, methods[method], version,
                size, ledger_hash(bytes, size));
}

static void fat_binary(const char *whose, const uint8_t *bytes, size_t room, int prelinked) {
  (void)prelinked; /* only in CUDA */
  char words[512], what[512];
  /* The loader maps code objects from the bundle by page. It copies unaligned ones, which is slow but correct. */
  if ((uintptr_t)bytes % 4096 != 0)
    ledger_line("NOTE: hip bundle %s does not lie on a page", whose);
  if (room >= 24 && memcmp(bytes, "CCOB", 4) == 0) {
    compressed_bundle(whose, bytes, room);
    return;
  }
  if (!ledger_check(room >= 32 && memcmp(bytes, bundle_magic, 24) == 0, "hip bundle %s: not a bundle", whose))
    return;
  uint64_t count = ledger_u(bytes + 24, 8), at = 32, end = 0;
  ledger_line("hip bundle %s entries=%" PRIu64, whose, count);
  ledger_check(count >= 2, "hip bundle %s: %" PRIu64 " entries, of which the first is the host's", whose, count);
  for (uint64_t i = 0; i < count; ++i) {
    if (!ledger_check(room - at >= 24, "hip bundle %s: ends within entry %" PRIu64, whose, i))
      return;
    uint64_t offset = ledger_u(bytes + at, 8), size = ledger_u(bytes + at + 8, 8), length = ledger_u(bytes + at + 16, 8);
    const char *id = (const char *)bytes + at + 24;
    if (!ledger_check(length && length < 256 && length <= room - at - 24, "hip bundle %s: entry %" PRIu64 " has an id of %" PRIu64 " bytes",
                      whose, i, length))
      return;
    snprintf(words, sizeof words, "hip image %s index=%" PRIu64 " id=%.*s", whose, i, (int)length, id);
    if (!ledger_check(offset <= room && size <= room - offset, "%s: offset=%" PRIu64 " size=%" PRIu64 " of %zu mapped bytes", words, offset,
                      size, room))
      return;
    ledger_check(offset % 4096 == 0, "%s: offset %" PRIu64 " is not on a page", words, offset);
    ledger_check(offset >= end, "%s: overlaps the one before", words);
    ledger_check(offset >= at + 24 + length, "%s: overlaps the header", words);
    end = offset + size;
    ledger_describe(what, sizeof what, bytes + offset, size);
    if (i == 0) {
      ledger_line("%s size=%" PRIu64, words, size);
      ledger_check(strncmp(id, "host-", 5) == 0 && size == 0, "%s: not an empty entry of the host", words);
    } else {
      ledger_line("%s is=%s size=%" PRIu64 " hash=%016" PRIx64, words, what, size, ledger_hash(bytes + offset, size));
      ledger_check(strncmp(id, "hip-", 4) == 0 || strncmp(id, "hipv4-", 6) == 0, "%s: not a HIP id", words);
      ledger_check(strcmp(what, "elf64-amdgpu-dyn") == 0 || strcmp(what, "spirv") == 0 || strcmp(what, "bitcode") == 0,
                   "%s: %s is no code object", words, what);
    }
    for (uint64_t j = 0, other = 32; j < i; ++j) {
      uint64_t width = ledger_u(bytes + other + 16, 8);
      ledger_check(width != length || memcmp(bytes + other + 24, id, length) != 0, "%s: the id of index=%" PRIu64, words, j);
      other += 24 + width;
    }
    at += 24 + length;
  }
}
