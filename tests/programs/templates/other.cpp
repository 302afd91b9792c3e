#include "sum.h"
int other(int n) {
  int host;
  return run(n, host);
}
