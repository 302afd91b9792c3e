/* Shared code of the CUDA and HIP stubs. A program registers one fat binary per call, gets a handle, and then registers the fat binary's
 * kernels and variables, one call each. The order of these calls is that of a table that the host linker joined, and has no meaning.
 * Therefore the stub collects the lines of a handle and writes them sorted.
 *
 * The includer defines RUNTIME, the runtime's name in the log; NAME(rest) and API(rest), which build function names; WRAPPER_MAGIC;
 * LAST_VERSION of the wrapper; and `static void fat_binary(const char *whose, const uint8_t *bytes, size_t room, int prelinked)`, which reads
 * a container. */
#ifndef OFFLD_FATBIN_H
#define OFFLD_FATBIN_H
#include "ledger.h"

enum { NO_DEVICE = 100 /* in both runtimes */ };

struct fatbin_wrapper {
  uint32_t magic, version;
  const uint8_t *data;
  const uint8_t *const *prelinked; /* version 2: the containers from which nvlink made `data`, and a null; version 1: null */
};

struct registration {
  char *line;
  const void *address; /* its host address: for a kernel, the launched function; for a variable, its shadow */
  int is_function;
  char *name;
};

struct module {
  const struct fatbin_wrapper *wrapper;
  enum { OPEN, ENDED, GONE } state;
  struct registration *rows;
  size_t count, written;
};

static struct module modules[256]; /* a handle is an address of an element; the index is `lib` in the log */
static int module_count;

static void fat_binary(const char *whose, const uint8_t *bytes, size_t room, int prelinked);

/* Returns the number of bytes from `bytes` to the end of its segment or mapping, which limits all stored sizes. */
static size_t fatbin_room(const uint8_t *bytes) {
  struct ledger_segment segment = {(uintptr_t)bytes, 0, 0};
  int found = dl_iterate_phdr(ledger_match_segment, &segment) || ledger_match_mapping(&segment);
  return found ? segment.end - (uintptr_t)bytes : 0;
}

/* Reads the containers of the modules that a device link joined. */
static void fatbin_prelinked(int lib, const uint8_t *const *list) {
  char whose[64];
  size_t most = fatbin_room((const uint8_t *)list) / sizeof *list, count = 0;
  for (; count < most && list[count]; ++count) {
    snprintf(whose, sizeof whose, "lib=%d prelinked=%zu", lib, count);
    for (size_t i = 0; i < count; ++i)
      ledger_check(list[i] != list[count], RUNTIME " %s: the container of prelinked=%zu again", whose, i);
    fat_binary(whose, list[count], fatbin_room(list[count]), 1);
  }
  ledger_check(count < most, RUNTIME " register lib=%d: its prelinked containers do not end with a null", lib);
  ledger_check(count != 0, RUNTIME " register lib=%d: no prelinked containers", lib);
}

/* clang appends a hash of the source's path to names that are static or in an anonymous namespace. */
static const char *fatbin_stable_name(const char *name, char *to, size_t room) {
  static const char *const marks[] = {".static.", "__static__", ".intern.", "__intern__"};
  for (size_t i = 0; name && i < sizeof marks / sizeof *marks; ++i) {
    const char *mark = strstr(name, marks[i]);
    if (!mark || strspn(mark + strlen(marks[i]), "0123456789abcdef_") != strlen(mark + strlen(marks[i])))
      continue;
    snprintf(to, room, "%.*s%s*", (int)(mark - name), name, marks[i]);
    return to;
  }
  return ledger_text(name);
}

static int fatbin_compare(const void *a, const void *b) {
  return strcmp(((const struct registration *)a)->line, ((const struct registration *)b)->line);
}

static void fatbin_write(struct module *m) {
  if (m->written == m->count)
    return;
  qsort(m->rows + m->written, m->count - m->written, sizeof *m->rows, fatbin_compare);
  while (m->written < m->count)
    ledger_line("%s", m->rows[m->written++].line);
}

/* HIP has no call that completes a handle, so the next other call does. */
static void fatbin_write_all(void) {
  for (int i = 0; i < module_count; ++i)
    fatbin_write(&modules[i]);
}

static struct module *fatbin_module(void **handle, const char *call) {
  struct module *m = (struct module *)handle;
  int known = m >= modules && m < modules + module_count && ((uintptr_t)m - (uintptr_t)modules) % sizeof *m == 0;
  return ledger_check(known, RUNTIME " %s: %s, which registering a fat binary never returned", call,
                      handle ? "a handle" : "a null handle")
             ? m
             : NULL;
}

/* Registers one kernel or variable. `name` is its device name. */
__attribute__((format(printf, 6, 7))) static void fatbin_row(void **handle, const char *what, const void *address, const char *host_name,
                                                            const char *name, const char *format, ...) {
  struct module *m = fatbin_module(handle, what);
  if (!m)
    return;
  int lib = (int)(m - modules);
  char shown[4096], words[256];
  const char *stable = fatbin_stable_name(name, shown, sizeof shown);
  /* The callbacks of nvcc's objects may come after the end: libcudart takes them for an image of prelinked code (tried on an H200). */
  int takes_rows = m->state == OPEN || (m->state == ENDED && m->wrapper->version == 2);
  ledger_check(takes_rows, RUNTIME " %s lib=%d name=%s: after %s", what, lib, stable,
               m->state == ENDED ? "the end of this handle's registrations" : "this handle's unregistration");
  ledger_check(name && *name, RUNTIME " %s lib=%d: no name", what, lib);
  ledger_check(address != NULL, RUNTIME " %s lib=%d name=%s: the host's address is null", what, lib, stable);
  ledger_check(name && host_name && strcmp(host_name, name) == 0, RUNTIME " %s lib=%d name=%s: its other name is %s", what, lib, stable,
               ledger_text(host_name));
  /* Registering the same name and address again is correct: every object that uses a template kernel, or declares a managed variable, has
   * an entry for it. */
  for (size_t i = 0; i < m->count; ++i) {
    int same_name = name && m->rows[i].name && strcmp(m->rows[i].name, name) == 0, same_address = m->rows[i].address == address;
    ledger_check(same_name == same_address || !address, RUNTIME " %s lib=%d name=%s: %s", what, lib, stable,
                 same_name ? "registered with another host address before" : "has the host address of another");
  }
  va_list args;
  va_start(args, format);
  vsnprintf(words, sizeof words, format, args);
  va_end(args);
  struct registration row = {NULL, address, strcmp(what, "function") == 0, name ? strdup(name) : NULL};
  m->rows = realloc(m->rows, (m->count + 1) * sizeof *m->rows);
  if (!m->rows || asprintf(&row.line, RUNTIME " %s lib=%d name=%s %s", what, lib, stable, words) < 0)
    abort();
  m->rows[m->count++] = row;
}

static const struct registration *fatbin_find(const void *address, int *lib) {
  for (*lib = 0; *lib < module_count; ++*lib)
    for (size_t i = 0; modules[*lib].state != GONE && i < modules[*lib].count; ++i)
      if (modules[*lib].rows[i].address == address)
        return &modules[*lib].rows[i];
  return NULL;
}

#define fatbin_bit(call, name, word, value)                                                                                          \
  ledger_check((value) == 0 || (value) == 1, RUNTIME " " call " name=%s: " word "=%d", ledger_text(name), value)

/* ---- entry points of both runtimes ----------------------------------------------------------------------------------------------- */

void **NAME(RegisterFatBinary)(const struct fatbin_wrapper *wrapper) {
  int lib = module_count;
  fatbin_write_all();
  if (!ledger_check(wrapper != NULL, RUNTIME " register: the wrapper is null") ||
      !ledger_check(lib < 256, RUNTIME " register: too many"))
    return NULL;
  for (int i = 0; i < lib; ++i)
    ledger_check(modules[i].state == GONE || modules[i].wrapper != wrapper, RUNTIME " register: the wrapper of lib=%d again", i);
  modules[module_count++] = (struct module){wrapper, OPEN, NULL, 0, 0};
  ledger_line(RUNTIME " register lib=%d version=%u", lib, wrapper->version);
  ledger_check((uintptr_t)wrapper % 8 == 0, RUNTIME " register lib=%d: the wrapper is not 8-aligned", lib);
  ledger_check(wrapper->version >= 1 && wrapper->version <= LAST_VERSION, RUNTIME " register lib=%d: version %u", lib, wrapper->version);
  char whose[32];
  snprintf(whose, sizeof whose, "lib=%d", lib);
#ifdef KPACK_MAGIC
  if (wrapper->magic == KPACK_MAGIC) {
    if (ledger_check(wrapper->data != NULL, RUNTIME " register lib=%d: no reference", lib))
      kpack(whose, wrapper->data, fatbin_room(wrapper->data), (uintptr_t)wrapper->prelinked);
    return (void **)&modules[lib];
  }
#endif
  ledger_check(wrapper->version == 2 || !wrapper->prelinked, RUNTIME " register lib=%d: the last pointer is not null", lib);
  ledger_check(wrapper->version != 2 || wrapper->prelinked, RUNTIME " register lib=%d: the last pointer is null", lib);
  if (ledger_check(wrapper->magic == WRAPPER_MAGIC, RUNTIME " register lib=%d: magic 0x%x", lib, wrapper->magic) &&
      ledger_check(wrapper->data != NULL, RUNTIME " register lib=%d: no fat binary", lib))
    fat_binary(whose, wrapper->data, fatbin_room(wrapper->data), 0);
  if (LAST_VERSION == 2 && wrapper->version == 2 && wrapper->prelinked)
    fatbin_prelinked(lib, wrapper->prelinked);
  return (void **)&modules[lib];
}

void NAME(UnregisterFatBinary)(void **handle) {
  fatbin_write_all();
  struct module *m = fatbin_module(handle, "unregister");
  if (!m)
    return;
  int lib = (int)(m - modules);
#ifdef HAS_END
  ledger_check(m->state != OPEN, RUNTIME " unregister lib=%d: its registrations never ended", lib);
#endif
  if (ledger_check(m->state != GONE, RUNTIME " unregister lib=%d: a second time", lib))
    ledger_line(RUNTIME " unregister lib=%d", lib);
  m->state = GONE;
}

__attribute__((destructor)) static void all_unregistered(void) {
  fatbin_write_all();
  for (int i = 0; i < module_count; ++i)
    ledger_check(modules[i].state == GONE, RUNTIME " lib=%d was never unregistered", i);
}

int NAME(RegisterFunction)(void **handle, const void *host, const char *host_name, const char *name, int threads, void *tid, void *bid,
                           void *block, void *grid, int *warp) {
  fatbin_row(handle, "function", host, host_name, name, "threads=%d", threads);
  ledger_check(threads == -1, RUNTIME " function name=%s: thread limit %d", ledger_text(name), threads);
  ledger_check(!tid && !bid && !block && !grid && !warp, RUNTIME " function name=%s: one of the last five is not null", ledger_text(name));
  return 0;
}

void NAME(RegisterVar)(void **handle, void *host, const char *host_name, const char *name, int external, size_t size, int constant,
                       int global) {
  fatbin_row(handle, "var", host, host_name, name, "size=%zu extern=%d constant=%d", size, external, constant);
  ledger_check(size != 0, RUNTIME " var name=%s: size 0", ledger_text(name));
  fatbin_bit("var", name, "extern", external);
  fatbin_bit("var", name, "constant", constant);
  ledger_check(global == 0, RUNTIME " var name=%s: the last argument is %d", ledger_text(name), global);
}

/* The host accesses a managed variable through a pointer that only the runtime sets, even without a device. clang's code for both runtimes
 * passes these arguments. */
static void fatbin_managed(void **handle, void **pointer, const void *initial, const char *name, size_t size, unsigned align) {
  fatbin_row(handle, "managed", pointer, name, name, "size=%zu align=%u", size, align);
  if (!ledger_check(pointer && initial && (const void *)pointer != initial,
                    RUNTIME " managed name=%s: its pointer and its initial value are not two addresses", ledger_text(name)) ||
      !ledger_check(size != 0, RUNTIME " managed name=%s: size 0", ledger_text(name)) ||
      !ledger_check(align && (align & (align - 1)) == 0, RUNTIME " managed name=%s: align=%u", ledger_text(name), align))
    return;
  if (!*pointer && posix_memalign(pointer, align < sizeof(void *) ? sizeof(void *) : align, size) != 0)
    abort();
  memcpy(*pointer, initial, size);
}

#if LAST_VERSION == 1
void NAME(RegisterManagedVar)(void **handle, void **pointer, const void *initial, const char *name, size_t size, unsigned align) {
  fatbin_managed(handle, pointer, initial, name, size, align);
}
#endif

void NAME(RegisterSurface)(void **handle, const void *host, const char *host_name, const char *name, int type, int external) {
  fatbin_row(handle, "surface", host, host_name, name, "type=%d extern=%d", type, external);
  fatbin_bit("surface", name, "extern", external);
}

void NAME(RegisterTexture)(void **handle, const void *host, const char *host_name, const char *name, int type, int normalized,
                           int external) {
  fatbin_row(handle, "texture", host, host_name, name, "type=%d normalized=%d extern=%d", type, normalized, external);
  fatbin_bit("texture", name, "normalized", normalized);
  fatbin_bit("texture", name, "extern", external);
}

/* ---- other functions that compiled programs call ----------------------------------------------------------------------------------
 * They behave as on a machine without a device. Launches and copies pass host addresses, which must be registered. */
#define WEAK __attribute__((weak))

struct dim3 {
  unsigned x, y, z;
};

static struct {
  struct dim3 grid, block;
  size_t shared;
  void *stream;
} configuration;

WEAK unsigned NAME(PushCallConfiguration)(struct dim3 grid, struct dim3 block, size_t shared, void *stream) {
  configuration.grid = grid;
  configuration.block = block;
  configuration.shared = shared;
  configuration.stream = stream;
  return 0;
}

WEAK int NAME(PopCallConfiguration)(struct dim3 *grid, struct dim3 *block, size_t *shared, void **stream) {
  *grid = configuration.grid;
  *block = configuration.block;
  *shared = configuration.shared;
  *stream = configuration.stream;
  return 0;
}

WEAK int API(LaunchKernel)(const void *kernel, struct dim3 grid, struct dim3 block, void **args, size_t shared, void *stream) {
  char shown[4096];
  int lib;
  fatbin_write_all();
  const struct registration *row = fatbin_find(kernel, &lib);
  (void)args;
  (void)stream;
  if (ledger_check(row && row->is_function, RUNTIME " launch: a kernel that is not registered"))
    ledger_line(RUNTIME " launch lib=%d name=%s grid=%ux%ux%u block=%ux%ux%u shared=%zu", lib,
                fatbin_stable_name(row->name, shown, sizeof shown), grid.x, grid.y, grid.z, block.x, block.y, block.z, shared);
  return NO_DEVICE;
}

static int symbol(const void *address, const char *call) {
  int lib;
  fatbin_write_all();
  const struct registration *row = fatbin_find(address, &lib);
  ledger_check(row && !row->is_function, RUNTIME " %s: a variable that is not registered", call);
  return NO_DEVICE;
}

WEAK int API(MemcpyToSymbol)(const void *to) { return symbol(to, "copy to symbol"); }
WEAK int API(MemcpyFromSymbol)(void *to, const void *from) { return (void)to, symbol(from, "copy from symbol"); }
WEAK int API(GetSymbolAddress)(void **to, const void *of) { return *to = NULL, symbol(of, "address of symbol"); }
WEAK int API(GetDeviceCount)(int *count) { return *count = 0, NO_DEVICE; }
WEAK int API(Malloc)(void **memory) { return *memory = NULL, NO_DEVICE; }
WEAK int API(Free)(void *memory) { return memory ? NO_DEVICE : 0; }
WEAK int API(Memcpy)() { return NO_DEVICE; }
WEAK int API(Memset)() { return NO_DEVICE; }
WEAK int API(SetDevice)() { return NO_DEVICE; }
WEAK int API(DeviceSynchronize)() { return NO_DEVICE; }
WEAK int API(GetLastError)() { return NO_DEVICE; }
WEAK const char *API(GetErrorString)(int error) { return error ? "no device" : "no error"; }

#endif
