// Arrays that are filled page by page when they are touched, by a handler of SIGSEGV; guards behind them; and what becomes of protections when memory is
// read by the kernel, moved, given back, freed and copied to a forked process.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef _OPENMP
#include <omp.h>
#endif

enum { PAGE = 4096, WORDS = PAGE / 8, PAGES = 10240 };

static uint64_t *lazy;
static int filled;
static __thread sigjmp_buf guard;
static __thread int is_guarded;

static void on_touch(int signal, siginfo_t *info, void *context) {
  (void)signal, (void)context;
  uintptr_t page = ((uintptr_t)info->si_addr - (uintptr_t)lazy) / PAGE;
  if (lazy && page < PAGES) {
    uint64_t *words = lazy + page * WORDS;
    if (mprotect(words, PAGE, PROT_READ | PROT_WRITE) != 0) _exit(8);
    // Threads may do so at once, all with the same result.
    for (int word = 0; word < WORDS; word++) words[word] = page * 1000003 + word;
    __atomic_fetch_add(&filled, 1, __ATOMIC_RELAXED);
    return;
  }
  if (!is_guarded) _exit(7);
  siglongjmp(guard, 1);
}

// Whether an access is denied.
static int denied(volatile char *at, int write) {
  is_guarded = 1;
  int is = sigsetjmp(guard, 1);
  if (!is) {
    if (write) *at = 1;
    else (void)*at;
  }
  is_guarded = 0;
  return is;
}

static char *map(size_t bytes, int prot) {
  char *at = mmap(NULL, bytes, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) exit(3);
  return at;
}

int main(void) {
  struct sigaction action = {.sa_sigaction = on_touch, .sa_flags = SA_SIGINFO};
  sigaction(SIGSEGV, &action, NULL);
  char *first = malloc(24 << 20);
  memset(first, 5, 24 << 20);
  lazy = (uint64_t *)map((size_t)PAGES * PAGE, PROT_NONE);
  uint64_t sum = 0, wrong = 0;
#pragma omp parallel for reduction(+ : sum, wrong) schedule(static, 3)
  for (int i = 0; i < PAGES; i++) {
    int page = (int)((uint64_t)i * 7919 % PAGES);
    for (int word = 0; word < WORDS; word += 7) {
      sum += lazy[page * WORDS + word];
      wrong += lazy[page * WORDS + word] != (uint64_t)page * 1000003 + word;
    }
  }
  printf("sum %lu, %lu wrong, filled: %d\n", (unsigned long)sum, (unsigned long)wrong, filled >= PAGES);
  lazy = NULL;

  // Guards around each of some blocks, met by every thread.
  enum { BLOCKS = 64, BYTES = 64 * PAGE };
  char *block[BLOCKS];
  int met = 0;
  for (int i = 0; i < BLOCKS; i++) {
    block[i] = map(BYTES, PROT_READ | PROT_WRITE);
    mprotect(block[i], PAGE, PROT_NONE);
    mprotect(block[i] + BYTES - PAGE, PAGE, PROT_NONE);
  }
#pragma omp parallel for reduction(+ : met)
  for (int i = 0; i < BLOCKS; i++) {
    memset(block[i] + PAGE, i, BYTES - 2 * PAGE);
    met += denied(block[i], 1) + denied(block[i] + PAGE - 1, 0) + denied(block[i] + BYTES - PAGE, 1);
  }
  printf("%d guards met\n", met);

  // The kernel refuses what is protected, and does the rest.
  int zero = open("/dev/zero", O_RDONLY), null = open("/dev/null", O_WRONLY);
  char *buffer = map(32 * PAGE, PROT_READ | PROT_WRITE);
  memset(buffer, 9, 32 * PAGE);
  mprotect(buffer + 16 * PAGE, PAGE, PROT_READ);
  mprotect(buffer + 24 * PAGE, PAGE, PROT_NONE);
  errno = 0;
  long r = read(zero, buffer + 16 * PAGE, 10);
  printf("read %ld %d", r, errno);
  int pipes[2];
  if (pipe(pipes) != 0) return 4;
  errno = 0;
  r = write(pipes[1], buffer + 16 * PAGE, 10);
  printf(", write %ld %d", r, errno);
  errno = 0;
  r = write(pipes[1], buffer + 24 * PAGE, 10);
  printf(", write %ld %d", r, errno);
  r = write(null, buffer, 20 * PAGE);
  printf(", write %ld, byte %d\n", r, buffer[16 * PAGE]);

  // Memory that moves takes its protection along, also where it grows, and what it leaves is usual.
  char *moved = map(16 * PAGE, PROT_READ | PROT_WRITE);
  memset(moved, 6, 16 * PAGE);
  mprotect(moved, 16 * PAGE, PROT_READ);
  moved = mremap(moved, 16 * PAGE, 16 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, map(32 * PAGE, PROT_READ | PROT_WRITE));
  moved = mremap(moved, 16 * PAGE, 400 * PAGE, MREMAP_MAYMOVE);
  if (moved == MAP_FAILED) return printf("mremap %d\n", errno), 0;
  printf("moved: %d %d %d, bytes %d %d\n", denied(moved, 0), denied(moved, 1), denied(moved + 399 * PAGE, 1), moved[15 * PAGE], moved[16 * PAGE]);

  // Advice empties protected memory, and it stays protected.
  char *empty = map(64 * PAGE, PROT_READ | PROT_WRITE);
  memset(empty, 4, 64 * PAGE);
  mprotect(empty, 64 * PAGE, PROT_READ);
  madvise(empty + 3 * PAGE, 7 * PAGE, MADV_DONTNEED);
  printf("emptied: %d %d %d, denied %d\n", empty[2 * PAGE], empty[3 * PAGE], empty[10 * PAGE], denied(empty + 3 * PAGE, 1));

  // A forked process has the same protections.
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    int all = denied(moved + 16 * PAGE, 1) && denied(block[1], 0) && !denied(block[1] + PAGE, 1) && empty[10 * PAGE] == 4;
    int opened = mprotect(block[1], PAGE, PROT_READ | PROT_WRITE) == 0 && !denied(block[1], 1);
    _exit(all && opened ? 21 : 22);
  }
  int status = 0;
  waitpid(child, &status, 0);
  printf("child ends with %d, here denied %d\n", WEXITSTATUS(status), denied(block[1], 0));

  // New memory is usual, whatever was there.
  for (int i = 0; i < BLOCKS; i++) munmap(block[i], BYTES);
  munmap(empty, 64 * PAGE);
  munmap(moved, 400 * PAGE);
  int refused = mprotect(empty, PAGE, PROT_NONE) != 0;
  int bad = 0;
  for (int i = 0; i < BLOCKS; i++) {
    char *again = calloc(1, BYTES);
    for (int at = 0; at < BYTES; at += PAGE / 2) bad += again[at] != 0;
    memset(again, 1, BYTES);
  }
  for (int at = 0; at < 24 << 20; at += PAGE) bad += first[at] != 5;
  // An allocator has memory of its own left, so that only a fault could tell.
  printf("%d bad, refused %d\n", bad, refused);
  return 0;
}
