/* cc -std=c11 -Wall -shared -fPIC sycl.c -o libsycl.so */

/* The registration part of a SYCL runtime. Programs compiled by clang 22 call nothing else in it, because the host side of a kernel is
 * empty.
 *
 * LLVM 22's runtime takes a descriptor; that of LLVM 23 and later takes the address and the size of an OffloadBinary, through functions with
 * the same names. This stub accepts both, told apart by the first bytes, and checks everything that the real runtime would read. */
#include "ledger.h"

struct device_image {
  uint16_t version;
  uint8_t kind, image_kind;
  const char *target, *compile_options, *link_options;
  void *start, *end;
  void *entries_begin, *entries_end; /* the kernels of this image, copied from the entry table */
  void *properties_begin, *properties_end;
};

struct bin_desc {
  uint16_t version, image_count;
  struct device_image *images;
  void *entries_begin, *entries_end; /* null */
};

static const void *registered[256]; /* null again after unregistration; the index is `lib` in the log */
static size_t registered_size[256]; /* of OffloadBinaries, else 0 */
static int registered_count;

/* Logs the kernel table of an image of LLVM 23: the number of kernels; for each name, its offset in the table and its size; then the
 * zero-terminated names. */
static void kernels(const char *words, const uint8_t *table, uint64_t size) {
  if (!ledger_check(size >= 4, "%s: a table of kernels of %" PRIu64 " bytes", words, size))
    return;
  uint64_t count = ledger_u(table, 4);
  if (!ledger_check(count <= (size - 4) / 8, "%s: a table of %" PRIu64 " kernels in %" PRIu64 " bytes", words, count, size))
    return;
  for (uint64_t i = 0; i < count; ++i) {
    uint64_t at = ledger_u(table + 4 + 8 * i, 4), length = ledger_u(table + 8 + 8 * i, 4);
    if (ledger_check(at >= 4 + 8 * count && at < size && length < size - at && table[at + length] == 0 &&
                         strlen((const char *)table + at) == length,
                     "%s: kernel %" PRIu64 " is not a name within the table", words, i))
      ledger_line("%s kernel=%s", words, table + at);
  }
}

static void register_binary(int lib, const uint8_t *base, size_t size) {
  char words[64], title[96];
  if (!ledger_check(size >= 32 && ledger_u(base + 8, 8) == size, "sycl register lib=%d: the binary has not the size it is said to have", lib))
    return;
  uint64_t version = ledger_u(base + 4, 4), entries = ledger_u(base + 16, 8), count = ledger_u(base + 24, 8);
  ledger_check((uintptr_t)base % 8 == 0, "sycl register lib=%d: the binary is not aligned", lib);
  ledger_line("sycl register lib=%d binary=%" PRIu64 " images=%" PRIu64, lib, version, count);
  if (!ledger_check(version == 2, "sycl register lib=%d: version %" PRIu64, lib, version) ||
      !ledger_check(entries <= size && count <= (size - entries) / 40, "sycl register lib=%d: entries past the end", lib))
    return;
  for (uint64_t i = 0; i < count; ++i) {
    const uint8_t *e = base + entries + 40 * i;
    uint64_t strings = ledger_u(e + 8, 8), number = ledger_u(e + 16, 8), at = ledger_u(e + 24, 8), length = ledger_u(e + 32, 8);
    unsigned image_kind = (unsigned)ledger_u(e, 2), kind = (unsigned)ledger_u(e + 2, 2);
    snprintf(words, sizeof words, "sycl image lib=%d index=%" PRIu64, lib, i);
    if (!ledger_check(strings <= size && number <= (size - strings) / 24 && at <= size && length <= size - at, "%s: past the end", words))
      continue;
    ledger_check(kind == LEDGER_SYCL, "%s: offload kind %u", words, kind);
    ledger_check(image_kind == 6 || image_kind == 1, "%s: image kind %u, which the runtime does not take", words, image_kind);
    const char *triple = NULL, *arch = NULL;
    const uint8_t *symbols = NULL;
    uint64_t symbols_size = 0;
    for (uint64_t j = 0; j < number; ++j) {
      const uint8_t *s = base + strings + 24 * j;
      uint64_t key = ledger_u(s, 8), value = ledger_u(s + 8, 8), value_size = ledger_u(s + 16, 8);
      if (!ledger_check(key < size && value <= size && value_size <= size - value && memchr(base + key, 0, size - key),
                        "%s: string %" PRIu64 " is past the end", words, j))
        continue;
      if (strcmp((const char *)base + key, "triple") == 0)
        triple = (const char *)base + value;
      if (strcmp((const char *)base + key, "arch") == 0)
        arch = (const char *)base + value;
      if (strcmp((const char *)base + key, "symbols") == 0)
        symbols = base + value, symbols_size = value_size;
    }
    snprintf(title, sizeof title, "%s target=%s arch=%s kind=%s", words, ledger_text(triple), ledger_text(arch), ledger_image_kind(image_kind));
    ledger_image(title, base + at, base + at + length);
    ledger_check(triple && *triple, "%s: no target", words);
    if (ledger_check(symbols != NULL, "%s: no table of kernels", words))
      kernels(words, symbols, symbols_size);
  }
}

static void register_descriptor(int lib, const struct bin_desc *desc);

void __sycl_register_lib(const void *start, size_t size) { /* callers of LLVM 22 pass no size, so it can be anything */
  int lib = registered_count;
  if (!ledger_check(start != NULL, "sycl register: the descriptor is null") || !ledger_check(lib < 256, "sycl register: too many"))
    return;
  for (int i = 0; i < lib; ++i)
    ledger_check(registered[i] != start, "sycl register: the descriptor of lib=%d again", i);
  int is_binary = memcmp(start, "\x10\xff\x10\xad", 4) == 0;
  registered[registered_count++] = start;
  registered_size[lib] = is_binary ? size : 0;
  if (is_binary)
    register_binary(lib, start, size);
  else
    register_descriptor(lib, start);
}

static void register_descriptor(int lib, const struct bin_desc *desc) {
  char words[64];
  ledger_line("sycl register lib=%d version=%u images=%u", lib, desc->version, desc->image_count);
  ledger_check(desc->version == 1, "sycl register lib=%d: version %u", lib, desc->version);
  ledger_check(!desc->entries_begin && !desc->entries_end, "sycl register lib=%d: entries for all images, which nobody reads", lib);
  ledger_check(desc->image_count > 0 && desc->images, "sycl register lib=%d: no images", lib);
  for (int i = 0; desc->images && i < desc->image_count; ++i) {
    const struct device_image *image = &desc->images[i];
    snprintf(words, sizeof words, "sycl image lib=%d index=%d", lib, i);
    if (!ledger_check(image->version == 3, "%s: version %u", words, image->version))
      continue; /* anything else has other fields */
    ledger_line("%s target=%s compile=%s link=%s kind=%s", words, ledger_text(image->target), ledger_text(image->compile_options),
                ledger_text(image->link_options), ledger_image_kind(image->image_kind));
    ledger_image(words, image->start, image->end);
    ledger_check(image->kind == LEDGER_SYCL, "%s: offload kind %u", words, image->kind);
    ledger_check(image->target && *image->target, "%s: no target", words);
    ledger_check(image->compile_options && image->link_options, "%s: its options are null, not empty", words);
    ledger_check(!image->properties_begin == !image->properties_end &&
                     (uintptr_t)image->properties_begin <= (uintptr_t)image->properties_end,
                 "%s: properties with one bound, or the wrong way round", words);
    for (int j = 0; j < i; ++j)
      ledger_check(image->start != desc->images[j].start, "%s: the same bytes as index=%d", words, j);
    if (!ledger_check(!image->entries_begin == !image->entries_end &&
                          (uintptr_t)image->entries_begin <= (uintptr_t)image->entries_end,
                      "%s: an entry table with one bound, or the wrong way round", words))
      continue;
    snprintf(words, sizeof words, "sycl entry lib=%d image=%d", lib, i);
    ledger_entries(words, image->entries_begin, image->entries_end);
    if (ledger_table_layout(image->entries_begin, image->entries_end) == LEDGER_NEW)
      for (const struct ledger_new_entry *e = image->entries_begin; (const void *)e < image->entries_end; ++e)
        ledger_check(e->kind == LEDGER_SYCL && !e->address && !e->flags && !e->size && !e->data && !e->aux,
                     "%s: name=%s is more than a kernel's name", words, ledger_text(e->name));
  }
}

void __sycl_unregister_lib(const void *start, size_t size) {
  for (int i = 0; i < registered_count; ++i)
    if (start && registered[i] == start) {
      ledger_check(!registered_size[i] || registered_size[i] == size, "sycl unregister lib=%d: another size", i);
      registered[i] = NULL;
      ledger_line("sycl unregister lib=%d", i);
      return;
    }
  (void)ledger_bad("sycl unregister: a descriptor that is not registered");
}

__attribute__((destructor)) static void all_unregistered(void) {
  for (int i = 0; i < registered_count; ++i)
    ledger_check(!registered[i], "sycl lib=%d was never unregistered", i);
}
