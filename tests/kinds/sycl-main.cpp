/* Kernels by clang's own attribute: no header is needed for what has no runtime. On the host clang 22 makes nothing of them. */
template <class Name, class F> [[clang::sycl_kernel_entry_point(Name)]] void kernel(F f) { f(); }
[[clang::sycl_external]] int helper(int); /* of sycl-helper.cpp */
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
