//! flags: -O2
//! expect: device 1
//! expect: iterations 1000 checksum 332833500
//! expect: teams in range 1 threads in range 1
// teams, distribute and parallel for as separate constructs, with limits.
#include <omp.h>
#include <stdio.h>

int main(void) {
  static int hit[1000];
  int host = 1, teams = 0, threads = 0;
#pragma omp target teams num_teams(4) thread_limit(2) map(tofrom : hit) map(from : host, teams, threads)
  {
    if (omp_get_team_num() == 0) {
      host = omp_is_initial_device();
      teams = omp_get_num_teams();
      threads = omp_get_thread_limit();
    }
#pragma omp distribute
    for (int block = 0; block < 10; ++block) {
#pragma omp parallel for
      for (int i = 0; i < 100; ++i)
        hit[100 * block + i] += 1;
    }
  }
  long sum = 0;
  int count = 0;
  for (int i = 0; i < 1000; ++i) {
    count += hit[i];
    sum += (long)hit[i] * i * i;
  }
  printf("device %d\niterations %d checksum %ld\n", !host, count, sum);
  printf("teams in range %d threads in range %d\n", teams >= 1 && teams <= 4, threads >= 1 && threads <= 2);
  return 0;
}
