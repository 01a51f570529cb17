// A handler of SIGSEGV that another signal must not interrupt, as in collectors with write barriers: they stop threads by a signal, and a thread that is
// stopped in such a handler holds a lock that the collector waits for.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 512 };

static char *memory;
static volatile sig_atomic_t inside, interrupted, came;

static void on_stop(int signal) {
  (void)signal;
  came++;
  interrupted += inside;
}

static void on_write(int signal, siginfo_t *info, void *context) {
  (void)signal, (void)context;
  inside = 1;
  pthread_kill(pthread_self(), SIGUSR2);
  char *page = (char *)((uintptr_t)info->si_addr & ~(uintptr_t)(PAGE - 1));
  if (mprotect(page, PAGE, PROT_READ | PROT_WRITE) != 0) _exit(8);
  inside = 0;
}

int main(void) {
  size_t n = 48 << 20;
  char *big = malloc(n);
  memset(big, 1, n);
  struct sigaction stop = {.sa_handler = on_stop}, write = {.sa_sigaction = on_write, .sa_flags = SA_SIGINFO}, old;
  sigaction(SIGUSR2, &stop, NULL);
  sigaddset(&write.sa_mask, SIGUSR2);
  sigaction(SIGSEGV, &write, NULL);
  sigaction(SIGSEGV, NULL, &old);
  printf("mask is told: %d %d\n", sigismember(&old.sa_mask, SIGUSR2), sigismember(&old.sa_mask, SIGUSR1));
  memory = mmap(NULL, (size_t)PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memset(memory, 1, (size_t)PAGES * PAGE);
  mprotect(memory, (size_t)PAGES * PAGE, PROT_READ);
  for (int page = 0; page < PAGES; page++) memory[page * PAGE] = 2;
  long sum = 0;
  for (size_t at = 0; at < n; at += PAGE) sum += big[at];
  printf("%d came, %d in a handler, sum %ld\n", came, interrupted, sum);
  return 0;
}
