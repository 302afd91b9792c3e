/* Prints what a program registers, as libomptarget would see it. */
#include <stdio.h>

struct image { char *start, *end; void *entries_begin, *entries_end; };
struct desc { int count; struct image *images; char *entries_begin, *entries_end; };
struct info { int version, number, count; const char *arch, *options; };

void __tgt_register_image_info(struct info *info) {
  printf("info %d %d/%d %s\n", info->version, info->number, info->count, info->arch);
}

void __tgt_register_lib(struct desc *desc) {
  printf("register %d %.*s %ld\n", desc->count, (int)(desc->images[0].end - desc->images[0].start),
         desc->images[0].start, (long)(desc->entries_end - desc->entries_begin));
}

void __tgt_unregister_lib(struct desc *desc) {
  (void)desc;
  puts("unregister");
}

int main(void) {
  puts("main");
  return 0;
}
