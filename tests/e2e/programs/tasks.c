/* Tasks whose data lies on a worker's stack, stolen by others; a big sort by tasks; dependences over big blocks. */
#include "e2e.h"

enum { N = 1 << 21, CUT = 1 << 14 };

static void sort(uint64_t *a, uint64_t *t, long n) {
    if (n <= CUT) {
        for (long w = 1; w < n; w *= 2) {
            for (long i = 0; i < n; i += 2 * w) {
                long l = i, m = i + w < n ? i + w : n, r = m, e = i + 2 * w < n ? i + 2 * w : n, o = i;
                while (l < m && r < e) t[o++] = a[l] <= a[r] ? a[l++] : a[r++];
                while (l < m) t[o++] = a[l++];
                while (r < e) t[o++] = a[r++];
            }
            memcpy(a, t, (size_t)n * sizeof *a);
        }
        return;
    }
    long h = n / 2;
    int done[2] = {0, 0}; /* on the stack of whoever runs this task */
#pragma omp task shared(done)
    { sort(a, t, h); done[0] = 1; }
#pragma omp task shared(done) firstprivate(h)
    { sort(a + h, t + h, n - h); done[1] = 2; }
#pragma omp taskwait
    CHECK(done[0] == 1 && done[1] == 2);
    long l = 0, r = h, o = 0;
    while (l < h && r < n) t[o++] = a[l] <= a[r] ? a[l++] : a[r++];
    while (l < h) t[o++] = a[l++];
    while (r < n) t[o++] = a[r++];
    memcpy(a, t, (size_t)n * sizeof *a);
}

typedef struct { long values[64]; } block;

int main(void) {
    uint64_t *a = malloc(N * sizeof *a), *t = malloc(N * sizeof *t);
    for (uint64_t i = 0; i < N; i++) a[i] = mix(i);
#pragma omp parallel
#pragma omp single
    sort(a, t, N);
    uint64_t sum = 0;
    for (long i = 0; i < N; i++) {
        if (i) CHECK(a[i - 1] <= a[i]);
        sum = sum * 31 + a[i];
    }
    printf("%016llx\n", (unsigned long long)sum);
    /* A large firstprivate. */
    long total = 0;
#pragma omp parallel
    {
        block b;
        for (int i = 0; i < 64; i++) b.values[i] = i;
#pragma omp single
        for (int k = 0; k < 200; k++) {
            b.values[0] = k;
#pragma omp task firstprivate(b) shared(total)
            {
                long s = 0;
                for (int i = 0; i < 64; i++) s += b.values[i];
#pragma omp atomic
                total += s;
            }
        }
    }
    printf("%ld\n", total);
    /* Dependences: blocks of a large array pass through stages in order. */
#pragma omp parallel
#pragma omp single
    for (int stage = 0; stage < 4; stage++)
        for (int k = 0; k < 16; k++) {
            uint64_t *p = t + (long)k * (N / 16);
#pragma omp task depend(inout : p[0]) firstprivate(p, stage)
            for (long i = 0; i < N / 16; i++) p[i] = stage ? p[i] * 3 + (uint64_t)stage : (uint64_t)i;
        }
    sum = 0;
    for (long i = 0; i < N; i++) sum = sum * 31 + t[i];
    printf("%016llx\n", (unsigned long long)sum);
    return verdict();
}
