/* The pseudorandom numbers of the NAS Parallel Benchmarks (NAS-95-020, section 2.3): x' = a x mod 2^46, scaled
 * to (0, 1). A 64-bit product keeps its low 46 bits exactly, so integers give the specification's double-double
 * arithmetic bit for bit. */
#ifndef ATOLL_NPB_RANDOM_H
#define ATOLL_NPB_RANDOM_H

#include <stdint.h>

#define NPB_MULTIPLIER 1220703125ULL /* 5^13 */
#define NPB_MASK ((1ULL << 46) - 1)

/* Advances *x by one step and returns it in (0, 1). */
static inline double npb_random(uint64_t *x) {
    *x = (*x * NPB_MULTIPLIER) & NPB_MASK;
    return (double)(int64_t)*x * 0x1p-46;
}

/* The seed `steps` steps after `x`, in O(log steps). */
static inline uint64_t npb_random_skip(uint64_t x, uint64_t steps) {
    for (uint64_t a = NPB_MULTIPLIER; steps; steps >>= 1, a = (a * a) & NPB_MASK)
        if (steps & 1) x = (x * a) & NPB_MASK;
    return x;
}

#endif
