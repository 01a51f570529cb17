/* Waiting for another thread by looking at memory, with an end: a store that never arrives is a failure, not a hang. */
#ifndef ATOLL_SPIN_H
#define ATOLL_SPIN_H
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { TURNS_BEFORE_YIELDING = 200, SECONDS_BEFORE_GIVING_UP = 50 };

/* How long somebody has waited already; begins as {0}. */
struct waiting {
    unsigned turns;
    time_t since;
};

/* One turn of a loop that waits. There may be more threads than processors, so it lets others run. */
static inline void spin(struct waiting *w) {
    if (++w->turns % TURNS_BEFORE_YIELDING)
        return;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (!w->since)
        w->since = now.tv_sec;
    if (now.tv_sec - w->since > SECONDS_BEFORE_GIVING_UP) {
        fprintf(stderr, "waited too long\n");
        exit(1);
    }
    sched_yield();
}

/* A number that depends on `x`, for inputs. */
static inline unsigned long mixed(unsigned long x) {
    x += 0x9e3779b97f4a7c15UL;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9UL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebUL;
    return x ^ (x >> 31);
}

/* The size that a program is asked for, or its own. */
static inline long size_of(int argc, char **argv, long own) {
    long size = argc > 1 ? atol(argv[1]) : own;
    return size > 0 ? size : own;
}
#endif
