/* A member that nothing needs. */
__device__ int of_unused;
__global__ void unused(int *p) { *p = of_unused; }
void run_unused() { unused<<<1, 1>>>(nullptr); }
