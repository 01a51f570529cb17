/* A library for loading.c: a large global, a region of its own, a constructor that allocates, thread-local data. */
#include <omp.h>
#include <stdint.h>
#include <stdlib.h>

enum { N = 2 << 20 };
uint64_t library_array[N];
static uint64_t *made;
static __thread int local = 11;

__attribute__((constructor)) static void begin(void) {
    made = malloc(N * 8);
    for (long i = 0; i < N; i++) made[i] = (uint64_t)i;
}

uint64_t library_sum(void) {
    uint64_t sum = 0;
#pragma omp parallel for reduction(+ : sum)
    for (long i = 0; i < N; i++) {
        library_array[i] += made[i];
        sum += library_array[i];
    }
    return sum;
}

int library_local(int set) {
    if (set) local = set;
    return local;
}
