/* Device code without a kernel, so without an entry, that the other source's device code needs. */
[[clang::sycl_external]] int helper(int value) { return value * 3; }
