/* cc -std=c11 -Wall -shared -fPIC sycl.c -o libsycl.so */

/* A SYCL runtime as far as registration reaches. Programs compiled by clang 22 call nothing else in it: the host's side of a kernel is
 * empty. */
#include "ledger.h"

struct device_image {
  uint16_t version;
  uint8_t kind, image_kind;
  const char *target, *compile_options, *link_options;
  void *start, *end;
  void *entries_begin, *entries_end; /* this image's own kernels, copied out of the table */
  void *properties_begin, *properties_end;
};

struct bin_desc {
  uint16_t version, image_count;
  struct device_image *images;
  void *entries_begin, *entries_end; /* null */
};

static struct bin_desc *registered[256]; /* null again after its unregistration; the index is its name in the ledger */
static int registered_count;

void __sycl_register_lib(struct bin_desc *desc) {
  int lib = registered_count;
  char words[64];
  if (!ledger_check(desc != NULL, "sycl register: the descriptor is null") || !ledger_check(lib < 256, "sycl register: too many"))
    return;
  for (int i = 0; i < lib; ++i)
    ledger_check(registered[i] != desc, "sycl register: the descriptor of lib=%d again", i);
  registered[registered_count++] = desc;

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

void __sycl_unregister_lib(struct bin_desc *desc) {
  for (int i = 0; i < registered_count; ++i)
    if (desc && registered[i] == desc) {
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
