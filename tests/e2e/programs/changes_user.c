// Becomes another user between two regions: glibc has all threads do so by a signal. Without the right to, it stays the same user by the same way.
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { BYTES = 24 << 20, NOBODY = 65534 };

int main(void) {
  long sum = 0;
  char *memory = calloc(BYTES, 1);
#pragma omp parallel for reduction(+ : sum) num_threads(2)
  for (int i = 0; i < BYTES; i++) {
    memory[i] = i;
    sum += memory[i];
  }
  int root = getuid() == 0;
  int failed = setgid(root ? NOBODY : getgid());
  failed |= setuid(root ? NOBODY : getuid());
#pragma omp parallel for reduction(+ : sum) num_threads(2)
  for (int i = 0; i < BYTES; i++) sum += memory[i];
  printf("%d %d %ld\n", failed, !root || getuid() == NOBODY, sum);
  return 0;
}
