/* HIP code in kpack archives beside the program, read as ROCm's loader does (ROCm/rocm-systems, shared/kpack/runtime/src/loader.cpp). The
 * loader opens the archives of the device's architecture; the stub, which has no device, opens all of them. */
#ifndef OFFLD_KPACK_H
#define OFFLD_KPACK_H
#include "ledger.h"
#include <dlfcn.h>
#include <glob.h>
#include <limits.h>

#define KPACK_MAGIC 0x4b504948u /* HIPK */

/* ---- MessagePack: a cursor at the next value; `at` is null after damage --------------------------------------------------------- */

struct mp {
  const uint8_t *at, *end;
};

static uint64_t mp_big(struct mp *m, size_t size) {
  uint64_t value = 0;
  if (!m->at || (size_t)(m->end - m->at) < size) {
    m->at = NULL;
    return 0;
  }
  while (size--)
    value = value << 8 | *m->at++;
  return value;
}

/* Reads the head of a value: its kind, and its number, length or count. */
static char mp_head(struct mp *m, uint64_t *value) {
  uint64_t tag = mp_big(m, 1);
  if (!m->at)
    return 0;
  if (tag < 0x80)
    return *value = tag, 'i';
  if (tag < 0x90)
    return *value = tag & 15, 'm';
  if (tag < 0xa0)
    return *value = tag & 15, 'a';
  if (tag < 0xc0)
    return *value = tag & 31, 's';
  switch (tag) {
  case 0xcc: case 0xcd: case 0xce: case 0xcf: return *value = mp_big(m, (size_t)1 << (tag - 0xcc)), 'i';
  case 0xd9: case 0xda: case 0xdb: return *value = mp_big(m, (size_t)1 << (tag - 0xd9)), 's';
  case 0xdc: case 0xdd: return *value = mp_big(m, tag == 0xdc ? 2 : 4), 'a';
  case 0xde: case 0xdf: return *value = mp_big(m, tag == 0xde ? 2 : 4), 'm';
  default: return m->at = NULL, (char)0;
  }
}

static void mp_skip(struct mp *m) {
  uint64_t value;
  switch (mp_head(m, &value)) {
  case 's': if (m->at && value <= (uint64_t)(m->end - m->at)) m->at += value; else m->at = NULL; return;
  case 'm': value *= 2; /* fall through */
  case 'a': while (m->at && value--) mp_skip(m); return;
  default: return;
  }
}

static int mp_text(struct mp m, char *to, size_t room) {
  uint64_t size;
  if (mp_head(&m, &size) != 's' || size >= room || size > (uint64_t)(m.end - m.at))
    return 0;
  memcpy(to, m.at, size);
  to[size] = 0;
  return 1;
}

/* Returns a cursor at the field `name` of a map. */
static struct mp mp_field(struct mp m, const char *name) {
  uint64_t count;
  char key[4096];
  if (mp_head(&m, &count) == 'm')
    while (m.at && count--) {
      int found = mp_text(m, key, sizeof key) && strcmp(key, name) == 0;
      mp_skip(&m);
      if (found)
        return m;
      mp_skip(&m);
    }
  return (struct mp){NULL, NULL};
}

static uint64_t mp_number(struct mp m) {
  uint64_t value = 0;
  return mp_head(&m, &value) == 'i' ? value : UINT64_MAX;
}

/* Moves a cursor from a list to its element. */
static struct mp mp_element(struct mp m, uint64_t index) {
  uint64_t count;
  if (mp_head(&m, &count) != 'a' || index >= count)
    return (struct mp){NULL, NULL};
  while (index--)
    mp_skip(&m);
  return m;
}

/* ---- archives -------------------------------------------------------------------------------------------------------------------- */

static void kpack_image(const char *whose, const char *arch, const uint8_t *bytes, size_t size) {
  char what[512];
  ledger_describe(what, sizeof what, bytes, size);
  ledger_line("hip image %s arch=%s is=%s size=%zu hash=%016" PRIx64, whose, arch, what, size, ledger_hash(bytes, size));
}

static void kpack_frame(const char *whose, const char *arch, const uint8_t *frame, size_t size, size_t original) {
  static size_t (*decompress)(void *, size_t, const void *, size_t);
  if (!decompress)
    *(void **)&decompress = dlsym(dlopen("libzstd.so.1", RTLD_NOW), "ZSTD_decompress");
  uint8_t *plain = malloc(original + 1);
  if (ledger_check(decompress && plain, "hip image %s arch=%s: cannot decompress", whose, arch) &&
      ledger_check(decompress(plain, original, frame, size) == original, "hip image %s arch=%s: damaged, or not %zu bytes", whose, arch,
                   original))
    kpack_image(whose, arch, plain, original);
  free(plain);
}

/* Reads the code objects of `key` in an archive, which is `size` bytes at `file`. */
static void kpack_archive(const char *whose, const char *key, const uint8_t *file, size_t size) {
  uint64_t table = size >= 64 ? ledger_u(file + 8, 8) : 0, count, frame_size;
  if (!ledger_check(size >= 64 && memcmp(file, "KPAK\1\0\0\0", 8) == 0 && table >= 64 && table < size, "hip kpack %s: not an archive", whose))
    return;
  struct mp toc = {file + table, file + size}, entries = mp_field(mp_field(toc, "toc"), key);
  if (!entries.at || mp_head(&entries, &count) != 'm')
    return; /* of another program */
  int plain = mp_field(toc, "blobs").at != NULL;
  while (entries.at && count--) {
    char arch[256] = "";
    mp_text(entries, arch, sizeof arch);
    mp_skip(&entries);
    uint64_t ordinal = mp_number(mp_field(entries, "ordinal")), original = mp_number(mp_field(entries, "original_size"));
    mp_skip(&entries);
    if (plain) {
      struct mp blob = mp_element(mp_field(toc, "blobs"), ordinal);
      uint64_t at = mp_number(mp_field(blob, "offset")), length = mp_number(mp_field(blob, "size"));
      if (ledger_check(at <= size && length <= size - at && length == original, "hip image %s arch=%s: outside of the archive", whose, arch))
        kpack_image(whose, arch, file + at, length);
      continue;
    }
    uint64_t at = mp_number(mp_field(toc, "zstd_offset")) + 4;
    for (frame_size = 0; at <= size - 4; at += 4 + frame_size) {
      frame_size = ledger_u(file + at, 4);
      if (frame_size > size - at - 4 || ordinal-- == 0)
        break;
    }
    if (ledger_check(at <= size - 4 && frame_size <= size - at - 4, "hip image %s arch=%s: outside of the archive", whose, arch))
      kpack_frame(whose, arch, file + at + 4, frame_size, original);
  }
}

/* Reads the code objects of a registration. `data` points to the program's reference, `number` is that of the registration. */
static void kpack(const char *whose, const uint8_t *data, size_t room, uint64_t number) {
  struct mp reference = {data, data + (room < 65536 ? room : 65536)};
  char name[4096], key[4200], path[4096], pattern[3 * PATH_MAX], real[PATH_MAX];
  if (!ledger_check(mp_text(mp_field(reference, "kernel_name"), name, sizeof name), "hip kpack %s: no kernel_name", whose))
    return;
  snprintf(key, sizeof key, "%s#%" PRIu64, name, number);
  ledger_line("hip kpack %s of=%s", whose, key);
  Dl_info info;
  if (!ledger_check(dladdr(data, &info) && realpath(info.dli_fname, real), "hip kpack %s: in no file", whose))
    return;
  *strrchr(real, '/') = 0;
  struct mp paths = mp_field(reference, "kpack_search_paths"), one;
  for (uint64_t i = 0; (one = mp_element(paths, i)).at && mp_text(one, path, sizeof path); ++i) {
    char *arch = strstr(path, "@GFXARCH@");
    snprintf(pattern, sizeof pattern, arch ? "%s/%.*sgfx*%s" : "%s/%.*s%s", real, arch ? (int)(arch - path) : (int)strlen(path), path,
             arch ? arch + 9 : "");
    glob_t found;
    if (!ledger_check(glob(pattern, 0, NULL, &found) == 0, "hip kpack %s: no archive", whose))
      continue;
    for (size_t j = 0; j < found.gl_pathc; ++j) {
      FILE *file = fopen(found.gl_pathv[j], "rb");
      long end = file && fseek(file, 0, SEEK_END) == 0 ? ftell(file) : 0;
      uint8_t *bytes = malloc((size_t)end + 1);
      size_t size = 0;
      if (file && bytes)
        rewind(file), size = fread(bytes, 1, (size_t)end, file);
      kpack_archive(whose, key, bytes, size);
      free(bytes);
      if (file)
        fclose(file);
    }
    globfree(&found);
  }
}
#endif
