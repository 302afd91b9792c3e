/* Loads images from files beside a program when the program starts (`--wrapper-external-images`). The constructor of the registration calls
 * one of the functions below with the table of the images, which `offload-formats` describes (`external_images.rs`).
 *
 * `offld-llvm` links this code into registration modules. It reads `loader.ll`, which `scripts/external-images.sh` makes from this file with
 * clang 19, so that LLVM 19 and later read it. The code uses only functions that every libc for Linux has, also in static programs, and no
 * structures whose layout depends on the machine. It is for 64-bit little-endian hosts. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <unistd.h>

/* Tests define another root for the files that describe the machine. */
#ifndef ROOT
#define ROOT ""
#endif
#define KFD_NODES ROOT "/sys/class/kfd/kfd/topology/nodes"

/* ---- The table. Offsets are from its start; strings end with a zero. ------------------------------------------------------------- */

struct table {
  char magic[8];
  uint32_t version;
  uint32_t kind;
  uint32_t size;
  uint32_t count;
  uint32_t directory; /* absolute, or relative to the directory of the program or library */
  uint32_t reserved;
};

/* The devices of an image. */
enum devices {
  NOT_DETECTABLE, /* the runtime decides */
  HOST,           /* the host's CPU */
  AMD,            /* `version` as the driver spells it: 90010 for gfx90a */
  AMD_FAMILY,     /* the major version is `version`: 9 */
};

struct image {
  uint64_t size;
  uint64_t digest; /* XXH64 of the file, with seed 0 */
  uint32_t name;   /* of the file */
  uint32_t id;     /* of the entry in HIP's bundle */
  uint32_t arch;
  uint32_t devices;
  uint32_t version;
  uint32_t reserved;
};

static const char *text(const struct table *table, uint32_t at) { return (const char *)table + at; }

static const struct image *image_at(const struct table *table, uint32_t index) { return (const struct image *)(table + 1) + index; }

/* ---- XXH64 (https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md) ------------------------------------------------------- */

#define PRIME1 0x9E3779B185EBCA87u
#define PRIME2 0xC2B2AE3D27D4EB4Fu
#define PRIME3 0x165667B19E3779F9u
#define PRIME4 0x85EBCA77C2B2AE63u
#define PRIME5 0x27D4EB2F165667C5u

static uint64_t rotated(uint64_t value, int by) { return value << by | value >> (64 - by); }

static uint64_t word(const unsigned char *at) {
  uint64_t value;
  memcpy(&value, at, sizeof value);
  return value;
}

static uint64_t mixed(uint64_t lane, uint64_t input) { return rotated(lane + input * PRIME2, 31) * PRIME1; }

static uint64_t merged(uint64_t hash, uint64_t lane) { return (hash ^ mixed(0, lane)) * PRIME1 + PRIME4; }

static uint64_t digest_of(const unsigned char *at, uint64_t size) {
  const unsigned char *end = at + size;
  uint64_t hash = PRIME5;
  if (size >= 32) {
    uint64_t a = PRIME1 + PRIME2, b = PRIME2, c = 0, d = 0 - PRIME1;
    for (; end - at >= 32; at += 32) {
      a = mixed(a, word(at));
      b = mixed(b, word(at + 8));
      c = mixed(c, word(at + 16));
      d = mixed(d, word(at + 24));
    }
    hash = rotated(a, 1) + rotated(b, 7) + rotated(c, 12) + rotated(d, 18);
    hash = merged(merged(merged(merged(hash, a), b), c), d);
  }
  hash += size;
  for (; end - at >= 8; at += 8)
    hash = rotated(hash ^ mixed(0, word(at)), 27) * PRIME1 + PRIME4;
  if (end - at >= 4) {
    uint32_t half;
    memcpy(&half, at, sizeof half);
    hash = rotated(hash ^ half * PRIME1, 23) * PRIME2 + PRIME3;
    at += 4;
  }
  for (; at < end; at++)
    hash = rotated(hash ^ *at * PRIME5, 11) * PRIME1;
  hash = (hash ^ hash >> 33) * PRIME2;
  hash = (hash ^ hash >> 29) * PRIME3;
  return hash ^ hash >> 32;
}

/* ---- The directory of the images -------------------------------------------------------------------------------------------------- */

/* The program or library that contains `address`. */
struct object {
  uintptr_t address;
  const char *name; /* as the loader found it; none for the program itself */
  int has_interpreter;
};

static int find_object(struct dl_phdr_info *info, size_t size, void *found) {
  struct object *object = found;
  (void)size;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
    if (i == 0)
      object->has_interpreter = 0;
    object->has_interpreter |= segment->p_type == PT_INTERP; /* before all PT_LOAD */
    if (segment->p_type != PT_LOAD || object->address - (info->dlpi_addr + segment->p_vaddr) >= segment->p_memsz)
      continue;
    int is_program = (uintptr_t)info->dlpi_phdr == getauxval(AT_PHDR);
    object->name = is_program || !info->dlpi_name || !*info->dlpi_name ? NULL : info->dlpi_name;
    return 1;
  }
  return 0;
}

/* Writes the real path of the program or library with the table to `path`, and returns the length of its directory, which a slash ends; 0 on
 * failure. */
static size_t own_path(const struct table *table, char path[PATH_MAX]) {
  struct object object = {(uintptr_t)table, NULL, 0};
  dl_iterate_phdr(find_object, &object);
  const char *names[] = {object.name ? object.name : "/proc/self/exe", NULL};
  if (!object.name)
    names[1] = (const char *)getauxval(AT_EXECFN);
  /* If the user has started the dynamic loader with the program as its argument, the process is the loader's. */
  if (!object.name && object.has_interpreter && !getauxval(AT_BASE) && names[1]) {
    const char *process = names[0];
    names[0] = names[1];
    names[1] = process;
  }
  if (!realpath(names[0], path) && (!names[1] || !realpath(names[1], path)))
    return 0;
  return (size_t)(strrchr(path, '/') + 1 - path);
}

/* ---- The devices of this machine -------------------------------------------------------------------------------------------------- */

#define MOST_DEVICES 64

struct machine {
  uint32_t amd[MOST_DEVICES]; /* the versions of AMD's GPUs */
  unsigned amd_count;
  int knows_amd;
};

/* Returns the number after `key` in a file of lines, such as `gfx_target_version 90010`; 0 if there is none. */
static uint32_t number_in(const char *file, const char *key) {
  char lines[4096];
  int fd = open(file, O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return 0;
  ssize_t length = read(fd, lines, sizeof lines - 1);
  close(fd);
  if (length <= 0)
    return 0;
  lines[length] = 0;
  const char *at = strstr(lines, key);
  return at ? (uint32_t)strtoul(at + strlen(key), NULL, 10) : 0;
}

static void detect(struct machine *machine) {
  machine->amd_count = 0;
  /* With this variable, or HSA_OVERRIDE_GFX_VERSION_0, the runtime takes code for other devices. */
  static const char overriding[] = "HSA_OVERRIDE_GFX_VERSION";
  for (char **variable = environ; variable && *variable; variable++)
    if (!strncmp(*variable, overriding, sizeof overriding - 1)) {
      machine->knows_amd = 0;
      return;
    }
  if (access(KFD_NODES, X_OK)) {
    /* Without the kernel's driver there is no device, unless Windows has the driver. */
    machine->knows_amd = !access(ROOT "/sys/class", X_OK) && access(ROOT "/dev/dxg", F_OK);
    return;
  }
  machine->knows_amd = 1;
  for (unsigned node = 0;; node++) {
    char file[sizeof KFD_NODES + 32];
    snprintf(file, sizeof file, KFD_NODES "/%u/properties", node);
    if (access(file, F_OK))
      return;
    /* 0 for a CPU, and for a device that this process may not use. */
    uint32_t version = number_in(file, "gfx_target_version ");
    if (version && machine->amd_count == MOST_DEVICES)
      machine->knows_amd = 0;
    else if (version)
      machine->amd[machine->amd_count++] = version;
  }
}

static int is_for_amd(const struct image *image) { return image->devices == AMD || image->devices == AMD_FAMILY; }

static int runs_on(const struct image *image, uint32_t version) {
  return is_for_amd(image) && image->version == (image->devices == AMD ? version : version / 10000);
}

enum fit { NO, MAYBE, YES };

static enum fit fit_of(const struct image *image, const struct machine *machine) {
  if (image->devices == HOST)
    return YES;
  if (!is_for_amd(image) || !machine->knows_amd)
    return MAYBE;
  for (unsigned i = 0; i < machine->amd_count; i++)
    if (runs_on(image, machine->amd[i]))
      return YES;
  return NO;
}

/* ---- Loading ---------------------------------------------------------------------------------------------------------------------- */

/* Address space for all images that may fit. It starts with one `struct slot` per image of the table, and space for the head of a bundle. */
static struct {
  char *base;
  size_t size;
} region;

struct slot {
  char *at; /* none if the image is not loaded */
  uint8_t fit;
  uint8_t is_missing;
};

static size_t pages(uint64_t size) {
  size_t page = getauxval(AT_PAGESZ);
  return (size + page - 1) / page * page;
}

static void complain(const char *own, const char *arch, const char *file, const char *why) {
  dprintf(STDERR_FILENO, "offld: %s: cannot load the device code for %s: `%s`: %s\n", own, arch, file, why);
}

/* Maps `image` from `file` to `at`. Returns none, or why that failed. */
static const char *map(const struct image *image, const char *file, char *at, int *is_missing) {
  int fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    *is_missing = errno == ENOENT || errno == ENOTDIR;
    return strerror(errno);
  }
  const char *why = NULL;
  off_t size = lseek(fd, 0, SEEK_END);
  if (size < 0)
    why = strerror(errno);
  else if ((uint64_t)size != image->size)
    why = "the file belongs to another build: its size differs";
  else if (mmap(at, image->size, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0) == MAP_FAILED)
    why = strerror(errno);
  else if (digest_of((const unsigned char *)at, image->size) != image->digest)
    why = "the file is damaged or belongs to another build: its digest differs";
  close(fd);
  return why;
}

/* Whether a device that `missing` runs on has no other image. If the devices are unknown, any image will do: packages for some devices lack
 * the files of the others. */
static int leaves_device_without(const struct table *table, const struct slot *slots, const struct image *missing,
                                 const struct machine *machine) {
  int is_known = is_for_amd(missing) && machine->knows_amd;
  for (unsigned device = 0; device < (is_known ? machine->amd_count : 1); device++) {
    if (is_known && !runs_on(missing, machine->amd[device]))
      continue;
    int is_served = 0;
    for (uint32_t i = 0; i < table->count; i++) {
      const struct image *other = image_at(table, i);
      is_served |= slots[i].at && (!is_known || runs_on(other, machine->amd[device]));
    }
    if (!is_served)
      return 1;
  }
  return 0;
}

/* Loads the images that may run on a device of this machine. Returns the slots of the table's images, or none if there is no memory. `head`:
 * the size of the writable bytes after the slots. */
static struct slot *load(const struct table *table, size_t head) {
  char own[PATH_MAX], file[PATH_MAX];
  struct machine machine;
  detect(&machine);
  size_t front = pages(table->count * sizeof(struct slot)) + pages(head);
  region.size = front;
  for (uint32_t i = 0; i < table->count; i++)
    if (fit_of(image_at(table, i), &machine) != NO)
      region.size += pages(image_at(table, i)->size);
  region.base = mmap(NULL, region.size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (region.base == MAP_FAILED || mprotect(region.base, front, PROT_READ | PROT_WRITE)) {
    dprintf(STDERR_FILENO, "offld: cannot load device code: %s\n", strerror(errno));
    region.base = NULL;
    return NULL;
  }
  struct slot *slots = (struct slot *)region.base;
  size_t directory = own_path(table, own);
  if (!directory || getauxval(AT_SECURE)) {
    /* The files of a program with another user's rights could be replaced. */
    dprintf(STDERR_FILENO, "offld: %s: cannot load device code from files: %s\n", directory ? own : "this program",
            directory ? "the program runs with the rights of another user" : "its own path is unknown");
    return slots;
  }
  const char *images = text(table, table->directory);
  if (*images == '/')
    directory = 0;
  char *at = region.base + front;
  for (uint32_t i = 0; i < table->count; i++) {
    const struct image *image = image_at(table, i);
    slots[i].fit = fit_of(image, &machine);
    if (slots[i].fit == NO)
      continue;
    int length = snprintf(file, sizeof file, "%.*s%s/%s", (int)directory, own, images, text(table, image->name));
    int is_missing = 0;
    const char *why = (size_t)length >= sizeof file ? strerror(ENAMETOOLONG) : map(image, file, at, &is_missing);
    slots[i].is_missing = (uint8_t)is_missing;
    if (!why)
      slots[i].at = at;
    else if (!is_missing)
      complain(own, text(table, image->arch), file, why);
    at += pages(image->size);
  }
  /* A file may be missing on purpose: a package for other devices has it. */
  int is_told = 0;
  for (uint32_t i = 0; i < table->count; i++) {
    const struct image *image = image_at(table, i);
    if (!slots[i].is_missing || (slots[i].fit == MAYBE && is_told) || !leaves_device_without(table, slots, image, &machine))
      continue;
    snprintf(file, sizeof file, "%.*s%s/%s", (int)directory, own, images, text(table, image->name));
    complain(own, text(table, image->arch), file, strerror(ENOENT));
    is_told |= slots[i].fit == MAYBE;
  }
  return slots;
}

/* ---- The functions that registration code calls ------------------------------------------------------------------------------------ */

/* `__tgt_device_image` */
struct device_image {
  const void *start, *end, *entries, *entries_end;
};

/* Fills `rows`, one per image of the table, from the first. All have the bounds of the entries already. Returns the number of images. */
int32_t offld_external_openmp(const struct table *table, struct device_image *rows) {
  int32_t count = 0;
  const struct slot *slots = load(table, 0);
  for (uint32_t i = 0; slots && i < table->count; i++) {
    if (!slots[i].at)
      continue;
    rows[count].start = slots[i].at;
    rows[count++].end = slots[i].at + image_at(table, i)->size;
  }
  return count;
}

static const char bundle_magic[] = "__CLANG_OFFLOAD_BUNDLE__";
static const char host_entry[] = "host-x86_64-unknown-linux-gnu-";

static char *put(char *at, const void *bytes, size_t size) { return (char *)memcpy(at, bytes, size) + size; }

static char *put_number(char *at, uint64_t value) { return put(at, &value, sizeof value); }

static char *put_entry(char *at, uint64_t offset, uint64_t size, const char *id) {
  size_t length = strlen(id);
  at = put_number(put_number(put_number(at, offset), size), length);
  return put(at, id, length);
}

/* Returns a bundle of the images that fit, for HIP's runtime; one without images if none does. */
const void *offld_external_hip(const struct table *table) {
  /* Some releases read a whole page. */
  static const char none[4096] = "__CLANG_OFFLOAD_BUNDLE__";
  size_t head = sizeof bundle_magic + 8 + 24 + sizeof host_entry;
  for (uint32_t i = 0; i < table->count; i++)
    head += 24 + strlen(text(table, image_at(table, i)->id));
  const struct slot *slots = load(table, head);
  if (!slots)
    return none;
  char *bundle = region.base + pages(table->count * sizeof(struct slot));
  char *count = put(bundle, bundle_magic, sizeof bundle_magic - 1);
  char *at = put_entry(count + 8, pages(head), 0, host_entry);
  uint64_t entries = 1;
  for (uint32_t i = 0; i < table->count; i++) {
    const struct image *image = image_at(table, i);
    if (!slots[i].at)
      continue;
    at = put_entry(at, (uint64_t)(slots[i].at - bundle), image->size, text(table, image->id));
    entries++;
  }
  put_number(count, entries);
  return bundle;
}

struct fatbinary {
  uint32_t magic;
  uint16_t version, header;
  uint64_t size; /* without the header */
};

/* Returns a fatbinary of the images that fit, for CUDA's runtime. Each file is a fatbinary itself. */
const void *offld_external_cuda(const struct table *table) {
  static const struct fatbinary none = {0xba55ed50, 1, sizeof none, 0};
  size_t head = sizeof none;
  for (uint32_t i = 0; i < table->count; i++)
    head += image_at(table, i)->size;
  const struct slot *slots = load(table, head);
  if (!slots)
    return &none;
  char *fatbinary = region.base + pages(table->count * sizeof(struct slot));
  char *at = put(fatbinary, &none, sizeof none);
  for (uint32_t i = 0; i < table->count; i++) {
    size_t size = image_at(table, i)->size;
    if (!slots[i].at || size < sizeof none)
      continue;
    at = put(at, slots[i].at + sizeof none, size - sizeof none);
    /* The address space stays reserved until the whole region is unmapped. */
    mmap(slots[i].at, pages(size), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  }
  ((struct fatbinary *)fatbinary)->size = (uint64_t)(at - fatbinary) - sizeof none;
  return fatbinary;
}

/* Removes the images from memory, after the runtime has forgotten them. */
void offld_external_unload(void) {
  if (region.base)
    munmap(region.base, region.size);
  region.base = NULL;
}
