/* Kernels with clang's own attribute, which needs no SYCL header. clang 22 generates no host code for them. */
template <class Name, class F> [[clang::sycl_kernel_entry_point(Name)]] void kernel(F f) { f(); }
[[clang::sycl_external]] int helper(int); /* in sycl-helper.cpp */
extern "C" int printf(const char *, ...);
extern "C" void part_sycl();

class First;
class Second;

extern "C" void part_sycl() {
  int *at = nullptr;
  kernel<First>([=] { *at = helper(2); });
  kernel<Second>([=] { *at = 3; });
}

#ifndef PART
int main() {
  part_sycl();
  printf("done\n");
}
#endif
