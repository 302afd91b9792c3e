/* A member with device code alone, which needs another one. */
extern __device__ int square(int);
__managed__ int one = 1;
__device__ int of_device(int x) { return square(x) + one; }
