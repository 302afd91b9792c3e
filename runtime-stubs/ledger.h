/* Shared code of all runtime stubs: writes the registration log, and describes bytes and entry tables in it.
 *
 * Tests compare logs, so a log has one fact per line: first the runtime, then `key=value` pairs. It has no addresses, and only the `hash=`
 * and `size=` of an image, always last in their line, differ between runs or directories. A failed check is a line that starts with `BAD: `. */
#ifndef OFFLD_LEDGER_H
#define OFFLD_LEDGER_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* dl_iterate_phdr */
#endif
#include <elf.h>
#include <inttypes.h>
#include <link.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEDGER_FN static __attribute__((unused)) /* no stub uses all of these functions */

enum { LEDGER_OPENMP = 1, LEDGER_CUDA = 2, LEDGER_HIP = 4, LEDGER_SYCL = 8 };

/* ---- lines ------------------------------------------------------------------------------------------------------------------ */

/* Opened at the first line and never closed, because constructors call runtimes before main, and destructors after exit.
 * Opened for appending, because the stubs of two runtimes in one program write to the same file. */
LEDGER_FN FILE *ledger_file(void) {
  static FILE *file;
  if (!file) {
    const char *path = getenv("OFFLD_LEDGER");
    file = path && *path ? fopen(path, "a") : stdout;
    if (!file) {
      perror(path);
      abort(); /* a test without its log could pass for the wrong reason */
    }
  }
  return file;
}

__attribute__((format(printf, 1, 2))) LEDGER_FN void ledger_line(const char *format, ...) {
  va_list args;
  va_start(args, format);
  vfprintf(ledger_file(), format, args);
  va_end(args);
  fputc('\n', ledger_file());
  fflush(ledger_file());
}

/* ledger_check(condition, "the defect"): the text includes the wrong value, because a reader of the log has no debugger. */
#define ledger_check(ok, ...) ((ok) ? 1 : ledger_bad(__VA_ARGS__))
#define ledger_bad(...) (ledger_line("BAD: " __VA_ARGS__), 0)

LEDGER_FN const char *ledger_text(const char *text) { return text ? (*text ? text : "''") : "null"; }

/* ---- bytes ------------------------------------------------------------------------------------------------------------------ */

LEDGER_FN uint64_t ledger_hash(const void *bytes, size_t size) { /* 64-bit FNV-1a */
  uint64_t hash = UINT64_C(0xcbf29ce484222325);
  for (size_t i = 0; i < size; ++i)
    hash = (hash ^ ((const uint8_t *)bytes)[i]) * UINT64_C(0x100000001b3);
  return hash;
}

LEDGER_FN uint64_t ledger_u(const uint8_t *at, size_t width) { /* host byte order, as in OffloadBinaries; any alignment */
  uint16_t h = 0;
  uint32_t w = 0;
  uint64_t d = 0;
  switch (width) {
  case 2: return memcpy(&h, at, 2), h;
  case 4: return memcpy(&w, at, 4), w;
  default: return memcpy(&d, at, 8), d;
  }
}

LEDGER_FN const char *ledger_kind(unsigned kind) {
  switch (kind) {
  case 0: return "none";
  case LEDGER_OPENMP: return "openmp";
  case LEDGER_CUDA: return "cuda";
  case LEDGER_HIP: return "hip";
  case LEDGER_SYCL: return "sycl";
  default: return "unknown";
  }
}

LEDGER_FN const char *ledger_image_kind(unsigned kind) {
  static const char *const names[] = {"none", "object", "bitcode", "cubin", "fatbinary", "ptx", "spirv"};
  return kind < sizeof(names) / sizeof(*names) ? names[kind] : "unknown";
}

/* An LLVM OffloadBinary, version 1 (llvm/Object/OffloadBinary.h): header 32 bytes, entry 40, strings of 16, all offsets from `base`. */
struct ledger_binary {
  const uint8_t *base;
  uint64_t size, image_offset, image_size;
  unsigned kind, image_kind;
  const char *triple, *arch; /* null: no such key */
};

/* Returns 1 if `base` starts an OffloadBinary of at most `room` bytes. Reads nothing beyond `room`. */
LEDGER_FN int ledger_read_binary(const uint8_t *base, uint64_t room, struct ledger_binary *out) {
  memset(out, 0, sizeof *out);
  if (room < 72 || memcmp(base, "\x10\xff\x10\xad", 4) != 0 || ledger_u(base + 4, 4) != 1)
    return 0;
  uint64_t size = ledger_u(base + 8, 8), entry = ledger_u(base + 16, 8);
  if (size > room || size < 72 || entry > size - 40)
    return 0;
  const uint8_t *e = base + entry;
  uint64_t strings = ledger_u(e + 8, 8), count = ledger_u(e + 16, 8);
  out->base = base;
  out->size = size;
  out->image_kind = (unsigned)ledger_u(e, 2);
  out->kind = (unsigned)ledger_u(e + 2, 2);
  out->image_offset = ledger_u(e + 24, 8);
  out->image_size = ledger_u(e + 32, 8);
  if (strings > size || count > (size - strings) / 16 || out->image_offset > size || out->image_size > size - out->image_offset)
    return 0;
  for (uint64_t i = 0; i < count; ++i) {
    uint64_t key = ledger_u(base + strings + 16 * i, 8), value = ledger_u(base + strings + 16 * i + 8, 8);
    if (key >= size || value >= size || !memchr(base + key, 0, size - key) || !memchr(base + value, 0, size - value))
      return 0;
    if (strcmp((const char *)base + key, "triple") == 0)
      out->triple = (const char *)base + value;
    if (strcmp((const char *)base + key, "arch") == 0)
      out->arch = (const char *)base + value;
  }
  return 1;
}

struct ledger_segment {
  uintptr_t address, start, end;
};

LEDGER_FN int ledger_match_segment(struct dl_phdr_info *info, size_t size, void *data) {
  struct ledger_segment *want = data;
  (void)size;
  for (unsigned i = 0; i < info->dlpi_phnum; ++i) {
    uintptr_t start = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
    if (info->dlpi_phdr[i].p_type != PT_LOAD || want->address < start || want->address - start >= info->dlpi_phdr[i].p_memsz)
      continue;
    want->start = start;
    want->end = start + info->dlpi_phdr[i].p_memsz;
    return 1;
  }
  return 0;
}

/* Finds the mapped memory around an address that is in no program or library: images that the program has loaded from files. */
LEDGER_FN int ledger_match_mapping(struct ledger_segment *want) {
  char line[4352];
  uintptr_t start, end;
  FILE *maps = fopen("/proc/self/maps", "r");
  want->start = want->end = 0;
  while (maps && fgets(line, sizeof line, maps)) {
    if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR, &start, &end) != 2)
      continue;
    if (want->end && start == want->end)
      want->end = end; /* the next image */
    else if (want->address >= start && want->address < end)
      want->start = start, want->end = end;
  }
  if (maps)
    fclose(maps);
  return want->end != 0;
}

/* Finds the OffloadBinary whose image is exactly [image, image+size): LLVM's wrapper embeds the whole binary and registers the image
 * inside it. Searches downwards from the image in steps of 8 bytes, never below the image's segment. */
LEDGER_FN int ledger_enclosing_binary(const uint8_t *image, size_t size, struct ledger_binary *out) {
  struct ledger_segment segment = {(uintptr_t)image, 0, 0};
  if (!dl_iterate_phdr(ledger_match_segment, &segment))
    return 0;
  for (uintptr_t back = 72; back <= 65536 && back <= (uintptr_t)image - segment.start; back += 8)
    if (ledger_read_binary(image - back, segment.end - (uintptr_t)image + back, out) && out->image_offset == back &&
        out->image_size == size)
      return 1;
  return 0;
}

LEDGER_FN const char *ledger_machine(unsigned machine) {
  switch (machine) {
  case EM_386: return "i386";
  case EM_X86_64: return "x86_64";
  case EM_AARCH64: return "aarch64";
  case EM_PPC64: return "ppc64";
  case EM_S390: return "s390";
  case EM_RISCV: return "riscv";
  case 190: return "cuda";
  case 205: return "intelgt";
  case 224: return "amdgpu";
  case 258: return "loongarch";
  default: return "other";
  }
}

/* Describes `size` bytes at `bytes` for a line of the log. The machine fields are in the image's own byte order. */
LEDGER_FN void ledger_describe(char *to, size_t room, const uint8_t *bytes, size_t size) {
  static const char *const types[] = {"none", "rel", "exec", "dyn"};
  struct ledger_binary binary;
  if (size >= 20 && memcmp(bytes, ELFMAG, 4) == 0) {
    int big = bytes[EI_DATA] == ELFDATA2MSB;
    unsigned type = big ? bytes[16] << 8 | bytes[17] : bytes[17] << 8 | bytes[16];
    unsigned machine = big ? bytes[18] << 8 | bytes[19] : bytes[19] << 8 | bytes[18];
    snprintf(to, room, "elf%s-%s-%s", bytes[EI_CLASS] == ELFCLASS64 ? "64" : "32", ledger_machine(machine),
             type < 4 ? types[type] : "other");
  } else if (ledger_read_binary(bytes, size, &binary)) {
    snprintf(to, room, "offloadbinary(kind=%s,image=%s,triple=%s,arch=%s)", ledger_kind(binary.kind),
             ledger_image_kind(binary.image_kind), ledger_text(binary.triple), ledger_text(binary.arch));
  } else if (size >= 4 && memcmp(bytes, "BC\xc0\xde", 4) == 0) {
    snprintf(to, room, "bitcode");
  } else if (size >= 20 && ledger_u(bytes, 4) == 0x07230203) {
    snprintf(to, room, "spirv");
  } else {
    snprintf(to, room, "raw");
  }
}

/* Logs one image of any runtime. The line starts with `words`. */
LEDGER_FN void ledger_image(const char *words, const void *start, const void *end) {
  char what[512], in[512] = "none";
  struct ledger_binary binary;
  if (!ledger_check(start && end, "%s: an image bound is null", words) ||
      !ledger_check((uintptr_t)end > (uintptr_t)start, "%s: the image is empty or ends before it starts", words))
    return;
  size_t size = (size_t)((const uint8_t *)end - (const uint8_t *)start);
  ledger_describe(what, sizeof what, start, size);
  if (ledger_enclosing_binary(start, size, &binary))
    snprintf(in, sizeof in, "offloadbinary(kind=%s,image=%s,triple=%s,arch=%s)", ledger_kind(binary.kind),
             ledger_image_kind(binary.image_kind), ledger_text(binary.triple), ledger_text(binary.arch));
  ledger_line("%s is=%s in=%s size=%zu hash=%016" PRIx64, words, what, in, size, ledger_hash(start, size));
  size_t align = strcmp(what, "raw") == 0 ? 1 : strcmp(what, "spirv") == 0 ? 4 : 8;
  ledger_check((uintptr_t)start % align == 0, "%s: not %zu-aligned, so its headers cannot be read in place", words, align);
}

/* ---- entry tables ------------------------------------------------------------------------------------------------------------ */

struct ledger_new_entry { /* LLVM 20 and later: 56 bytes on 64-bit hosts */
  uint64_t reserved;
  uint16_t version, kind;
  uint32_t flags;
  void *address;
  char *name;
  uint64_t size, data;
  void *aux;
};

struct ledger_old_entry { /* up to LLVM 19: 32 bytes on 64-bit hosts */
  void *address;
  char *name;
  size_t size;
  int32_t flags, data;
};

enum ledger_layout { LEDGER_EMPTY, LEDGER_OLD, LEDGER_NEW };

/* Decides as libomptarget does: the first eight bytes of a new table are zero, those of an old one are an address. */
LEDGER_FN enum ledger_layout ledger_table_layout(const void *begin, const void *end) {
  return begin == end ? LEDGER_EMPTY : ledger_u(begin, 8) == 0 ? LEDGER_NEW : LEDGER_OLD;
}

LEDGER_FN size_t ledger_entry_size(enum ledger_layout layout) {
  return layout == LEDGER_NEW ? sizeof(struct ledger_new_entry) : layout == LEDGER_OLD ? sizeof(struct ledger_old_entry) : 1;
}

/* clang puts the device and inode number of the source into a kernel's name; they differ on every checkout. */
LEDGER_FN const char *ledger_stable_name(const char *name, char *to, size_t room) {
  static const char prefix[] = "__omp_offloading_";
  if (!name || strncmp(name, prefix, sizeof prefix - 1) != 0)
    return ledger_text(name);
  const char *rest = name + sizeof prefix - 1;
  for (int part = 0; part < 2; ++part) {
    size_t digits = strspn(rest, "0123456789abcdef");
    if (digits == 0 || rest[digits] != '_')
      return name;
    rest += digits + 1;
  }
  snprintf(to, room, "%s*_%s", prefix, rest);
  return to;
}

LEDGER_FN int ledger_compare_lines(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* Logs a line per entry, sorted, because the order in the table is that of the host link and has no meaning. */
LEDGER_FN void ledger_entries(const char *words, const void *begin, const void *end) {
  enum ledger_layout layout = ledger_table_layout(begin, end);
  size_t row = ledger_entry_size(layout), bytes = (size_t)((const char *)end - (const char *)begin), count = bytes / row;
  char **lines = calloc(count + 1, sizeof *lines), name[4096];
  if (layout == LEDGER_EMPTY || !ledger_check(bytes % row == 0, "%s: a table of %zu bytes is no whole number of %zu-byte entries", words,
                                              bytes, row))
    count = 0;
  for (size_t i = 0; i < count; ++i) {
    const char *at = (const char *)begin + i * row;
    struct ledger_new_entry e = {0};
    if (layout == LEDGER_NEW) {
      memcpy(&e, at, sizeof e);
      ledger_check(e.reserved == 0, "%s: entry %zu of a new table starts like one of an old table", words, i);
      ledger_check(e.version == 1, "%s: entry %zu has version %u", words, i, e.version);
    } else {
      struct ledger_old_entry old;
      memcpy(&old, at, sizeof old);
      e = (struct ledger_new_entry){0, 0, 0, (uint32_t)old.flags, old.address, old.name, old.size, (uint32_t)old.data, NULL};
    }
    const char *shown = ledger_stable_name(e.name, name, sizeof name);
    ledger_check(e.name != NULL, "%s: entry %zu has no name", words, i);
    /* OpenMP's entry for `requires` flags (0x10) and SYCL's kernels, which are found by name, have no symbol. */
    ledger_check(e.address || (e.flags & 0x10) || e.kind == LEDGER_SYCL, "%s: entry %s has no address", words, shown);
    if (asprintf(&lines[i], "%s name=%s size=%" PRIu64 " flags=0x%x kind=%s data=%" PRIu64 " addr=%s aux=%s", words, shown, e.size,
                 e.flags, layout == LEDGER_OLD ? "unsaid" : ledger_kind(e.kind), e.data, e.address ? "set" : "null",
                 e.aux ? "set" : "null") < 0)
      abort();
  }
  qsort(lines, count, sizeof *lines, ledger_compare_lines);
  for (size_t i = 0; i < count; ++i) {
    ledger_line("%s", lines[i]);
    free(lines[i]);
  }
  free(lines);
}

#endif
