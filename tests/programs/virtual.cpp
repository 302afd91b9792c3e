//! flags: -O2
//! expect: device 1
//! expect: area 12 + 50 = 62
// Virtual calls on objects that are created on the device: vtables and type information come from the device link.
#include <cstdio>
#include <omp.h>

#pragma omp begin declare target
struct Shape {
  virtual int area() const = 0;
  virtual ~Shape() {}
};
struct Rectangle : Shape {
  int w, h;
  Rectangle(int w, int h) : w(w), h(h) {}
  int area() const override { return w * h; }
};
struct Square : Rectangle {
  explicit Square(int a) : Rectangle(a, a) {}
  int area() const override { return 2 * Rectangle::area(); }
};
int area_of(const Shape &shape) { return shape.area(); }
#pragma omp end declare target

int main() {
  int host = 1, one = 0, two = 0;
#pragma omp target map(from : host, one, two)
  {
    host = omp_is_initial_device();
    one = area_of(Rectangle(3, 4));
    two = area_of(Square(5));
  }
  std::printf("device %d\narea %d + %d = %d\n", !host, one, two, one + two);
}
