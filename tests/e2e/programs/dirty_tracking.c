// What checkpoints and collectors with write barriers do: memory is protected, a handler of SIGSEGV notes the page that is written and opens it again, and
// what is noted must be what was written, no page less and no page more. With OpenMP every thread writes, and memory is protected between regions and in
// them. All of it has to come and go all the while.
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#ifdef _OPENMP
#include <omp.h>
#endif

enum { PAGE = 4096, PAGES = 12288, ROUNDS = 6 };

static unsigned char *memory;
static unsigned char noted[PAGES];
static int faults;

static void on_write(int signal, siginfo_t *info, void *context) {
  (void)signal, (void)context;
  uintptr_t page = ((uintptr_t)info->si_addr - (uintptr_t)memory) / PAGE;
  if (page >= PAGES || info->si_code != SEGV_ACCERR) _exit(7);
  __atomic_store_n(&noted[page], 1, __ATOMIC_RELAXED);
  __atomic_fetch_add(&faults, 1, __ATOMIC_RELAXED);
  if (mprotect(memory + page * PAGE, PAGE, PROT_READ | PROT_WRITE) != 0) _exit(8);
}

static int is_written(int page, int round) { return (page * 7 + round * 5) % 11 < 4; }

static unsigned char value(int page, int round) { return (unsigned char)(page * 3 + round * 17 + 1); }

static void protect(void) {
  memset(noted, 0, sizeof noted);
  if (mprotect(memory, (size_t)PAGES * PAGE, PROT_READ) != 0) exit(9);
}

static void write_all(int round) {
#pragma omp for schedule(static, 5)
  for (int page = 0; page < PAGES; page++)
    if (is_written(page, round)) memory[(size_t)page * PAGE + page % PAGE] = value(page, round);
}

int main(void) {
  struct sigaction action = {.sa_sigaction = on_write, .sa_flags = SA_SIGINFO};
  sigaction(SIGSEGV, &action, NULL);
  memory = mmap(NULL, (size_t)PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 2;
  static unsigned char expected[PAGES];
  for (int page = 0; page < PAGES; page++) memory[(size_t)page * PAGE + page % PAGE] = expected[page] = value(page, 0);
  for (int round = 1; round <= ROUNDS; round++) {
    int in_region = round % 2;
    if (!in_region) protect();
#pragma omp parallel
    {
#pragma omp single
      if (in_region) protect();
      write_all(round);
    }
    long sum = 0;
    for (int page = 0; page < PAGES; page++) {
      if (is_written(page, round)) expected[page] = value(page, round);
      unsigned char found = memory[(size_t)page * PAGE + page % PAGE];
      if (found != expected[page] || noted[page] != is_written(page, round)) {
        printf("round %d, page %d: holds %d instead of %d, noted %d\n", round, page, found, expected[page], noted[page]);
        return 1;
      }
      sum += found;
    }
    printf("round %d: sum %ld\n", round, sum);
  }
  // All of it can be written again without a fault.
  mprotect(memory, (size_t)PAGES * PAGE, PROT_READ | PROT_WRITE);
  int before = faults;
#pragma omp parallel for
  for (int page = 0; page < PAGES; page++) memory[(size_t)page * PAGE] = 1;
  printf("%d faults after that\n", faults - before);
  return 0;
}
