struct Shape {
  __device__ virtual ~Shape() {}
  __device__ virtual int area() = 0;
};
__device__ Shape *make(int size);
