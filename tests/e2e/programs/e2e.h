/* What the helper programs share: a check that says where it failed. Output on stdout must not depend on timing or on
 * the number of workers: it is compared with the native run's. */
#ifndef ATOLL_E2E_H
#define ATOLL_E2E_H
#include <omp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures;

#define CHECK(condition)                                                                                       \
    do {                                                                                                       \
        if (!(condition) && __atomic_add_fetch(&failures, 1, __ATOMIC_SEQ_CST) <= 20)                          \
            fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #condition);                            \
    } while (0)

static inline int verdict(void) {
    printf(failures ? "%d failed\n" : "all well\n", failures);
    return failures != 0;
}

/* A value that depends on place and round. */
static inline uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15ULL;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
}
#endif
