int there(int x) { return 10 * x; }
#pragma omp declare target to(there) device_type(nohost)
