/* Regions of several kinds, for what is counted and decided by region on several nodes. */
#include "e2e.h"
#include <unistd.h>

#define N (1 << 15)
static double data[N];
static int hits[256];
static volatile unsigned char work[1 << 12];

static inline __attribute__((always_inline)) void sweep(double by) {
#pragma omp parallel for
    for (int i = 0; i < N; i++) data[i] += by;
}

/* Every thread of the team is there once, whatever node it is on. */
static void who(int team) {
    for (int i = 0; i < team; i++) hits[i] = 0;
#pragma omp parallel
    {
        CHECK(omp_get_num_threads() == team);
        hits[omp_get_thread_num()]++;
    }
    for (int i = 0; i < team; i++) CHECK(hits[i] == 1);
}

static int seen[4096];

static long dealt(void) {
    long sum = 0;
#pragma omp parallel for schedule(dynamic, 4)
    for (int i = 0; i < 4000; i++) seen[i]++;
    for (int i = 0; i < 4000; i++) {
        sum += seen[i] * i;
        seen[i] = 0;
    }
    return sum;
}

static long blocks(int n) {
    long sum = 0;
#pragma omp parallel reduction(+ : sum)
    {
#pragma omp for schedule(runtime)
        for (int i = 0; i < n; i++) sum += i;
    }
    return sum;
}

static void rounds(int n, int team) {
    for (int round = 0; round < n; round++) {
        sweep(1);
        who(team);
        sweep(2);
        CHECK(dealt() == 7998000 && blocks(1000 + round) == (1000L + round) * (999 + round) / 2);
        data[round] -= 3;
    }
    for (int i = 0; i < N; i++) CHECK(data[i] == 3.0 * (n - (i < n)));
}

/* Long loops of equal parts. */
static void heavy(int n) {
    printf("ready\n");
    fflush(stdout);
    sleep(1);
    for (int round = 0; round < n; round++) {
#pragma omp parallel for
        for (int i = 0; i < 1024; i++) {
            uint64_t x = i;
            for (int k = 0; k < 15000; k++) x = mix(x);
            work[i * 4] = (unsigned char)x;
        }
    }
}

int main(int argc, char **argv) {
    int n = argc > 2 ? atoi(argv[2]) : 100;
    const char *how = argc > 1 ? argv[1] : "rounds";
    if (!strcmp(how, "heavy")) heavy(n);
    else rounds(n, omp_get_max_threads());
    return verdict();
}
