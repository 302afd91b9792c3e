/* Calls the shared library from C. */
#include <stdio.h>
int ten_times_sum(int count, const int *values);
int main(void) {
  int values[3] = {1, 2, 3};
  printf("%d\n", ten_times_sum(3, values));
  return 0;
}
