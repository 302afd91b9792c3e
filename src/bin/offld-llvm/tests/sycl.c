/* Prints what a program registers, as the SYCL runtime would see it. */
#include <stdint.h>
#include <stdio.h>

struct entry {
  uint64_t reserved;
  uint16_t version, kind;
  uint32_t flags;
  void *addr;
  const char *name;
  uint64_t size, data;
  void *aux;
};

struct image {
  uint16_t version;
  uint8_t offload_kind, image_kind;
  const char *target, *compile, *link, *start, *end;
  struct entry *entries_begin, *entries_end;
  void *properties_begin, *properties_end;
};

struct desc { uint16_t version, count; struct image *images; void *entries_begin, *entries_end; };

void __sycl_register_lib(struct desc *desc) {
  printf("register %d %d\n", desc->version, desc->count);
  for (struct image *image = desc->images; image != desc->images + desc->count; ++image) {
    printf("image %d %d %d %s '%s' '%s' %.*s", image->version, image->offload_kind, image->image_kind, image->target,
           image->compile, image->link, (int)(image->end - image->start), image->start);
    for (struct entry *entry = image->entries_begin; entry != image->entries_end; ++entry)
      printf(" %s%s", entry->name, entry->kind == 8 && entry->version == 1 && !entry->addr ? "" : " BAD");
    puts(image->properties_begin || image->properties_end ? " BAD" : "");
  }
}

void __sycl_unregister_lib(struct desc *desc) {
  (void)desc;
  puts("unregister");
}

int main(void) {
  puts("main");
  return 0;
}
