// Maps a file of one page over three pages of its own memory. An access beyond the file's end raises SIGBUS, for which the program has a
// handler, and what lies around the file stays what it was.
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, BYTES = 48 << 20, AT = 1 << 20 };

static sigjmp_buf back;
static volatile char *where;

static void raised(int signal, siginfo_t *info, void *context) {
  (void)signal, (void)context;
  if (info->si_addr != where) _exit(3);
  siglongjmp(back, 1);
}

int main(void) {
  char *memory = malloc(BYTES);
  for (int i = 0; i < BYTES; i += 64) memory[i] = (char)(i >> 12);
  char *at = memory + AT - (long)memory % PAGE;
  FILE *file = tmpfile();
  char page[PAGE];
  memset(page, 77, PAGE);
  if (write(fileno(file), page, PAGE) != PAGE) return 1;
  void *got = mmap(at, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fileno(file), 0);
  if (got != at) return 2;
  struct sigaction action = {.sa_sigaction = raised, .sa_flags = SA_SIGINFO};
  sigaction(SIGBUS, &action, 0);
  int caught = 0, sum = at[5];
  for (int round = 0; round < 3; round++)
    for (int page = 1; page < 3; page++) {
      where = at + page * PAGE + round;
      if (sigsetjmp(back, 1) == 0) *where = 1;
      else caught++;
    }
  at[7] = 1;
  long rest = 0;
#ifdef _OPENMP
#pragma omp parallel for reduction(+ : rest)
#endif
  for (int i = 0; i < BYTES; i += 64)
    if (memory + i < at || memory + i >= at + 3 * PAGE) rest += memory[i];
  printf("%d caught, %d, %ld\n", caught, sum, rest);
  return 0;
}
