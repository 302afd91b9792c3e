// A fat object: an entry, code that counts the entries between the bounds, a COMDAT group, and a section with a device image and a symbol.
extern "C" int printf(const char *, ...);

struct entry {
  unsigned long long reserved;
  void *address;
};
extern "C" const entry __start_llvm_offload_entries[] __attribute__((visibility("hidden")));
extern "C" const entry __stop_llvm_offload_entries[] __attribute__((visibility("hidden")));

template <typename T> __attribute__((noinline)) T common(T value) {
  static T kept = value;
  return kept + value;
}

namespace {
int kernel(int value) { return common(value); }
__attribute__((section("llvm_offload_entries"), used, aligned(8))) const entry mine = {0, (void *)kernel};
__attribute__((constructor)) void show() {
  long count = 0;
  for (const entry *one = __start_llvm_offload_entries; one < __stop_llvm_offload_entries; ++one)
    count += one->address != nullptr;
  printf("%ld entries\n", count);
}
} // namespace

int NAME(int value) { return common(value) + 1; }

__asm__(".pushsection .llvm.offloading,\"e\",@0x6fff4c0b\nimage:\n.ascii \"SECRETIMAGE\"\n.popsection\n");
