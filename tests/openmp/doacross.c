/* Iterations that wait for earlier ones, in one to seven dimensions and all schedules. */
#include "check.h"
#include <string.h>

#define N 60
static int a[N][N];

#define WAVE(...)                                                                                              \
    memset(a, 0, sizeof a);                                                                                    \
    _Pragma(#__VA_ARGS__) for (int i = 1; i < N; i++) for (int j = 1; j < N; j++) {                            \
        _Pragma("omp ordered depend(sink: i - 1, j) depend(sink: i, j - 1)") int up, left;                     \
        _Pragma("omp atomic read") up = a[i - 1][j];                                                           \
        _Pragma("omp atomic read") left = a[i][j - 1];                                                         \
        int most = (up > left ? up : left) + 1;                                                                \
        _Pragma("omp atomic write") a[i][j] = most;                                                            \
        _Pragma("omp ordered depend(source)")                                                                  \
    }                                                                                                          \
    for (int i = 1; i < N; i++)                                                                                \
        for (int j = 1; j < N; j++)                                                                            \
            CHECK(a[i][j] == i + j - 1);

static void chain(void) {
    static long sum[1000];
    sum[0] = 0;
#pragma omp parallel for ordered(1) schedule(dynamic, 3)
    for (unsigned long i = 1; i < 1000; i++) {
#pragma omp ordered depend(sink : i - 1)
        sum[i] = sum[i - 1] + (long)i;
#pragma omp ordered depend(source)
    }
    CHECK(sum[999] == 999L * 1000 / 2);
}

static void seven(void) {
    static int seen[128];
    memset(seen, 0, sizeof seen);
#pragma omp parallel for ordered(7) schedule(static, 1)
    for (int i = 0; i < 2; i++)
        for (int b = 0; b < 2; b++)
            for (int c = 0; c < 2; c++)
                for (int d = 0; d < 2; d++)
                    for (int e = 0; e < 2; e++)
                        for (int f = 0; f < 2; f++)
                            for (int g = 0; g < 2; g++) {
                                int at = ((((((i * 2 + b) * 2 + c) * 2 + d) * 2 + e) * 2 + f) * 2) + g;
#pragma omp ordered depend(sink : i - 1, b, c, d, e, f, g)
                                int before = 0;
                                if (i > 0) {
#pragma omp atomic read
                                    before = seen[at - 64];
                                }
#pragma omp atomic write
                                seen[at] = before + 1;
#pragma omp ordered depend(source)
                            }
    for (int at = 0; at < 128; at++)
        CHECK(seen[at] == 1 + at / 64);
}

int main(void) {
    WAVE(omp parallel for ordered(2))
    WAVE(omp parallel for ordered(2) schedule(static))
    WAVE(omp parallel for ordered(2) schedule(static, 4))
    WAVE(omp parallel for ordered(2) schedule(dynamic, 2))
    WAVE(omp parallel for ordered(2) schedule(guided, 2))
    omp_set_schedule(omp_sched_dynamic, 3);
    WAVE(omp parallel for ordered(2) schedule(runtime))
    chain();
    seven();
    return result();
}
