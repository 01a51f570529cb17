/* Threads that were there before the program needed memory: one on a small alternate stack of its own, one that blocks all signals,
 * one that only waits and ends while pages move. They use what is allocated later. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 6 << 20 };

static pthread_barrier_t barrier;
static uint64_t *big;
static uint64_t sums[4];

static void add(int which) {
    pthread_barrier_wait(&barrier);
    for (int round = 0; round < 3; round++)
        for (size_t i = which; i < N; i += 4) sums[which] += big[i]++;
}

static void *small_stack(void *unused) {
    static char memory[8192];
    stack_t stack = {.ss_sp = memory, .ss_size = sizeof memory}, now;
    sigaltstack(&stack, 0);
    sigaltstack(0, &now);
    if (now.ss_sp != memory) puts("another stack");
    add(0);
    sigaltstack(0, &now);
    if (now.ss_sp != memory) puts("another stack");
    stack.ss_flags = SS_DISABLE;
    sigaltstack(&stack, 0);
    return unused;
}

static void *blocked(void *unused) {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, 0);
    add(1);
    return unused;
}

static void *plain(void *unused) {
    add(2);
    return unused;
}

static void *allocates(void *unused) {
    big = malloc(N * sizeof *big);
    for (size_t i = 0; i < N; i++) big[i] = i * 3;
    add(3);
    return unused;
}

int main(void) {
    void *(*all[])(void *) = {small_stack, blocked, plain, allocates};
    pthread_t threads[4];
    pthread_barrier_init(&barrier, 0, 4);
    for (int t = 0; t < 4; t++) pthread_create(&threads[t], 0, all[t], 0);
    for (int t = 0; t < 4; t++) pthread_join(threads[t], 0);
    uint64_t sum = 0;
    for (size_t i = 0; i < N; i++) sum += big[i] * (i % 11);
    printf("%lu %lu %lu %lu %lu\n", sums[0], sums[1], sums[2], sums[3], sum);
    return 0;
}
