/* A program's own SIGSEGV beside pages that come and go: a handler that jumps out of accesses to a page without rights, while threads
 * with all signals blocked use memory; a handler that returns after the page has its rights; a signal that is sent; and at last, with
 * an argument, an access that ends the program. */
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { N = 5 << 20, JUMPS = 2000 };

static uint64_t *big;
static char *closed;
static sigjmp_buf back;
static volatile int sent, opened, is_blocked;

static void *adds(void *first) {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, 0);
    uint64_t place = (uintptr_t)first;
    for (int step = 0; step < 400000; step++) {
        place = place * 6364136223846793005u + 1442695040888963407u;
        big[(place >> 33) % (N / 2) * 2 + (uintptr_t)first]++;
    }
    return 0;
}

static void jumps(int number, siginfo_t *info, void *unused) {
    (void)unused;
    if (info->si_code <= 0) {
        sent += number == SIGSEGV;
        return;
    }
    sigset_t now;
    sigprocmask(SIG_BLOCK, 0, &now);
    is_blocked += sigismember(&now, SIGUSR1);
    if (info->si_addr != closed) _exit(3);
    siglongjmp(back, 1);
}

static void opens(int number, siginfo_t *info, void *unused) {
    (void)number, (void)unused;
    if (info->si_addr != closed + 4096) _exit(4);
    opened++;
    mprotect(closed, 8192, PROT_READ | PROT_WRITE);
}

int main(int count, char **arguments) {
    (void)arguments;
    big = malloc(N * sizeof *big);
    for (size_t i = 0; i < N; i++) big[i] = i;
    closed = mmap(0, 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct sigaction action = {.sa_sigaction = jumps, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &action, 0);
    pthread_t threads[2];
    for (uintptr_t i = 0; i < 2; i++) pthread_create(&threads[i], 0, adds, (void *)i);
    int jumped = 0;
    for (int i = 0; i < JUMPS; i++) {
        if (sigsetjmp(back, 1)) jumped++;
        else big[(size_t)i * 2617 % N] += *(volatile char *)closed;
    }
    for (int i = 0; i < 2; i++) pthread_join(threads[i], 0);
    raise(SIGSEGV);
    struct sigaction before;
    action.sa_sigaction = opens;
    sigaction(SIGSEGV, &action, &before);
    closed[4096] = 5;
    uint64_t sum = 0;
    for (size_t i = 0; i < N; i++) sum = sum * 31 + big[i];
    printf("%d jumps, %d sent, %d opened, %d blocked, own handler %d: %016lx\n", jumped, sent, opened, is_blocked,
           before.sa_sigaction == jumps, sum);
    fflush(stdout);
    if (count > 1) {
        signal(SIGSEGV, SIG_DFL);
        *(volatile char *)0 = 1;
    }
    return 0;
}
