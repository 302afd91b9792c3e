#include "kernels.h"
#include <stdio.h>
int main(void) {
  int values[4] = {1, 2, 3, 4}, result = 0;
  int on_host = scale(4, 10, values) + sum(4, values, &result);
  printf("%d %d %d on the %s\n", values[0], values[3], result, on_host ? "host" : "device");
  return 0;
}
