// y = a x + y on the device. Checks every element, and that the device computed it.
#include <cstdio>
#include <omp.h>
#include <vector>

int main() {
    const int n = 1000;
    std::vector<float> x(n, 2.0F), y(n, 1.0F);
    float *px = x.data(), *py = y.data();
    int on_host = 1;
#pragma omp target teams distribute parallel for map(to : px[0 : n]) map(tofrom : py[0 : n])
    for (int i = 0; i < n; ++i) {
        py[i] += 3.0F * px[i];
    }
#pragma omp target map(from : on_host)
    on_host = omp_is_initial_device();
    for (int i = 0; i < n; ++i) {
        if (py[i] != 7.0F) {
            std::printf("saxpy: element %d is %f\n", i, py[i]);
            return 1;
        }
    }
    std::printf("saxpy: right, %s\n", on_host ? "on the host" : "on a device");
    return on_host;
}
