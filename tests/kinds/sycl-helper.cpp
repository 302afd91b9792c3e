/* Device code alone: no kernel, so no entry, but the other one's device code needs it. */
[[clang::sycl_external]] int helper(int value) { return value * 3; }
