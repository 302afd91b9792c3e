#pragma omp begin declare target
static int state = 100;
static int step() { return ++state; }
#pragma omp end declare target

int part() {
  int out = 0;
#pragma omp target map(from : out)
  out = step();
  return out;
}
