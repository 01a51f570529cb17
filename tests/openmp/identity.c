/* The process and its clocks as workers see them: one process with one parent and one folder, whose time goes on from worker
 * to worker and never back. ARGV[1] is the number of times the clock is handed round. */
#define _GNU_SOURCE
#include "check.h"
#include "spin.h"
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

enum { MOST_THREADS = 64 };

static long rounds;

static void one_process(void) {
    pid_t process = getpid(), parent = getppid(), group = getpgrp();
    uid_t user = getuid();
    char folder[4096] = "", host[256] = "";
    long other = 0;
    CHECK(getcwd(folder, sizeof folder) && gethostname(host, sizeof host) == 0);
#pragma omp parallel reduction(+ : other)
    {
        char mine[4096] = "", name[256] = "";
        other += getpid() != process;
        other += getppid() != parent; /* was the program itself, where a worker is a process */
        other += getpgrp() != group;
        other += getuid() != user;
        other += !getcwd(mine, sizeof mine) || strcmp(mine, folder);
        other += gethostname(name, sizeof name) != 0 || strcmp(name, host);
        other += !getenv("PATH") || !*getenv("PATH");
    }
    CHECK(other == 0);
}

static long nanoseconds(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * 1000000000L + t.tv_nsec;
}

/* The clock is read under a lock: who comes later never sees less. */
static void time_goes_on(void) {
    static const clockid_t clocks[] = {CLOCK_MONOTONIC, CLOCK_REALTIME, CLOCK_BOOTTIME};
    for (size_t c = 0; c < sizeof clocks / sizeof *clocks; c++) {
        long last = nanoseconds(clocks[c]), back = 0;
#pragma omp parallel
        for (long round = 0; round < rounds; round++) {
#pragma omp critical
            {
                long now = nanoseconds(clocks[c]);
                back += now < last;
                last = now;
            }
        }
        CHECK(back == 0 && nanoseconds(clocks[c]) >= last);
    }
}

/* Across barriers, also by the calls that programs use to time themselves. */
static void times_agree(void) {
    static double at[MOST_THREADS], wall[MOST_THREADS];
    long back = 0;
    double began = omp_get_wtime();
    time_t second = time(NULL);
#pragma omp parallel reduction(+ : back)
    for (int round = 0; round < 20; round++) {
        int me = omp_get_thread_num(), threads = omp_get_num_threads();
        struct timeval t;
        at[me] = omp_get_wtime();
        gettimeofday(&t, NULL);
        wall[me] = (double)t.tv_sec + 1e-6 * (double)t.tv_usec;
        back += time(NULL) < second || at[me] < began;
#pragma omp barrier
        double now = omp_get_wtime();
        gettimeofday(&t, NULL);
        double now_wall = (double)t.tv_sec + 1e-6 * (double)t.tv_usec;
        for (int i = 0; i < threads; i++)
            back += now < at[i] || now_wall < wall[i];
#pragma omp barrier
    }
    CHECK(back == 0);
}

/* A worker's own processor time grows when it works. */
static void own_time(void) {
    long still = 0;
#pragma omp parallel reduction(+ : still)
    {
        long before = nanoseconds(CLOCK_THREAD_CPUTIME_ID);
        volatile unsigned long x = 1;
        for (int i = 0; i < 200000; i++)
            x = x * 3 + 1;
        still += nanoseconds(CLOCK_THREAD_CPUTIME_ID) <= before;
    }
    CHECK(still == 0);
}

int main(int argc, char **argv) {
    rounds = size_of(argc, argv, 300);
    one_process();
    time_goes_on();
    times_agree();
    own_time();
    return result();
}
