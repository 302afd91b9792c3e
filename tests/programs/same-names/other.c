#pragma omp begin declare target
static int state = 100;
__attribute__((noinline)) static int step(void) { return state += 2; }
#pragma omp end declare target

int there(void) {
  int out = 0;
#pragma omp target map(from : out)
  out = step();
  return out;
}
