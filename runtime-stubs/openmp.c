/* cc -std=c11 -Wall -shared -fPIC openmp.c -o libomptarget.so */

/* The registration part of libomptarget. Registrations go to the log. Every request for device work fails, so that a program continues on
 * the host, as on a machine without a device. */
#include "ledger.h"

struct device_image {
  void *start, *end;
  void *entries_begin, *entries_end;
};

struct bin_desc {
  int32_t image_count;
  struct device_image *images;
  void *entries_begin, *entries_end;
};

struct image_info { /* AMD's clang-offload-wrapper --offload-arch: a call per image, before the image's registration */
  int32_t version, number, count;
  const char *arch, *compile_opts;
};

static struct bin_desc *registered[256]; /* null again after unregistration; the index is `lib` in the log */
static int registered_count;

void __tgt_register_lib(struct bin_desc *desc) {
  int lib = registered_count;
  char words[64];
  if (!ledger_check(desc != NULL, "openmp register: the descriptor is null") || !ledger_check(lib < 256, "openmp register: too many"))
    return;
  for (int i = 0; i < lib; ++i)
    ledger_check(registered[i] != desc, "openmp register: the descriptor of lib=%d again", i);
  registered[registered_count++] = desc;

  enum ledger_layout layout = ledger_table_layout(desc->entries_begin, desc->entries_end);
  size_t row = ledger_entry_size(layout), bytes = (size_t)((char *)desc->entries_end - (char *)desc->entries_begin);
  ledger_line("openmp register lib=%d images=%d entries=%zu layout=%zu", lib, desc->image_count, layout ? bytes / row : 0,
              layout ? row : 0);
  ledger_check(desc->image_count > 0 && desc->images, "openmp register lib=%d: no images", lib);
  for (int i = 0; desc->images && i < desc->image_count; ++i) {
    const struct device_image *image = &desc->images[i];
    snprintf(words, sizeof words, "openmp image lib=%d index=%d", lib, i);
    ledger_check(image->entries_begin == desc->entries_begin && image->entries_end == desc->entries_end,
                 "%s: its entry table is not the descriptor's", words);
    ledger_image(words, image->start, image->end);
    for (int j = 0; j < i; ++j)
      ledger_check(image->start != desc->images[j].start, "%s: the same bytes as index=%d", words, j);
  }
  snprintf(words, sizeof words, "openmp entry lib=%d", lib);
  ledger_entries(words, desc->entries_begin, desc->entries_end);
}

void __tgt_unregister_lib(struct bin_desc *desc) {
  for (int i = 0; i < registered_count; ++i)
    if (desc && registered[i] == desc) {
      registered[i] = NULL;
      ledger_line("openmp unregister lib=%d", i);
      return;
    }
  (void)ledger_bad("openmp unregister: a descriptor that is not registered");
}

/* Wrappers unregister by atexit or in a destructor. Both run before the destructors of this library, on which the program depends. */
__attribute__((destructor)) static void all_unregistered(void) {
  for (int i = 0; i < registered_count; ++i)
    ledger_check(!registered[i], "openmp lib=%d was never unregistered", i);
}

void __tgt_register_image_info(struct image_info *info) {
  if (!ledger_check(info != NULL, "openmp image-info: null"))
    return;
  ledger_line("openmp image-info version=%d number=%d count=%d arch=%s opts=%s", info->version, info->number, info->count,
              ledger_text(info->arch), ledger_text(info->compile_opts));
  ledger_check(info->version == 1, "openmp image-info: version %d", info->version);
  ledger_check(info->number >= 0 && info->number < info->count, "openmp image-info: number %d of %d", info->number, info->count);
}

/* ---- other functions that compiled programs call -------------------------------------------------------------------------------
 * Deliberately declared without parameters: none is read, and the C calling convention lets a callee ignore its arguments. Weak, so that
 * a test can define its own. */
#define FAILS(name)                                                                                                                  \
  __attribute__((weak)) int name() { return ~0; } /* OFFLOAD_FAIL: run the region on the host */
#define NOTHING(name)                                                                                                                \
  __attribute__((weak)) void name() {}

FAILS(__tgt_target)
FAILS(__tgt_target_mapper)
FAILS(__tgt_target_nowait)
FAILS(__tgt_target_nowait_mapper)
FAILS(__tgt_target_teams)
FAILS(__tgt_target_teams_mapper)
FAILS(__tgt_target_teams_nowait)
FAILS(__tgt_target_teams_nowait_mapper)
FAILS(__tgt_target_kernel)
FAILS(__tgt_target_kernel_nowait)

/* Data directives do nothing and succeed, because on the host, the device's copy is the original. */
NOTHING(__tgt_target_data_begin)
NOTHING(__tgt_target_data_begin_mapper)
NOTHING(__tgt_target_data_begin_nowait)
NOTHING(__tgt_target_data_begin_nowait_mapper)
NOTHING(__tgt_target_data_end)
NOTHING(__tgt_target_data_end_mapper)
NOTHING(__tgt_target_data_end_nowait)
NOTHING(__tgt_target_data_end_nowait_mapper)
NOTHING(__tgt_target_data_update)
NOTHING(__tgt_target_data_update_mapper)
NOTHING(__tgt_target_data_update_nowait)
NOTHING(__tgt_target_data_update_nowait_mapper)
NOTHING(__tgt_push_mapper_component)
NOTHING(__tgt_register_requires)
NOTHING(__tgt_target_nowait_query)
NOTHING(__kmpc_push_target_tripcount)
NOTHING(__kmpc_push_target_tripcount_mapper)

__attribute__((weak)) int64_t __tgt_mapper_num_components() { return 0; }

/* libomp has these too, but asks libomptarget first. */
__attribute__((weak)) int omp_get_num_devices(void) { return 0; }
__attribute__((weak)) int omp_get_initial_device(void) { return 0; }
__attribute__((weak)) int omp_get_device_num(void) { return 0; }
__attribute__((weak)) void *omp_target_alloc(size_t size, int device) { return (void)device, malloc(size); }
__attribute__((weak)) void omp_target_free(void *memory, int device) { (void)device, free(memory); }
