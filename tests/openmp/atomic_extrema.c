/* Least and greatest of real numbers by loops of compare and swap, into one place and into many, and the place of the least
 * packed with it in one word. ARGV[1] is the number of values. */
#include "check.h"
#include "spin.h"
#include <math.h>
#include <stdint.h>
#include <string.h>

enum { GROUPS = 1 << 13 };

static long n;
static double *values;
static double least[GROUPS], greatest[GROUPS];
static float small_least[GROUPS];

static inline double least_of(double a, double b) { return b < a ? b : a; }
static inline double greatest_of(double a, double b) { return b > a ? b : a; }
static inline int group_of(long i) { return (int)(mixed((unsigned long)i * 3) % GROUPS); }

/* Ever lesser and ever greater ones towards the end, so that there is something to do. */
static double value_of(long i) {
    double x = (double)(mixed((unsigned long)i) >> 11) * 0x1p-52 - 1.0;
    return x * (double)(i + 1) / (double)n;
}

static void lower(double *at, double value) {
    double old;
    __atomic_load(at, &old, __ATOMIC_RELAXED);
    while (value < old && !__atomic_compare_exchange(at, &old, &value, 1, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
    }
}

static void raise_to(double *at, double value) {
    /* By bits, as programs for older compilers do. */
    union {
        double real;
        uint64_t bits;
    } old = {.bits = *(volatile uint64_t *)at}, new = {.real = value};
    while (new.real > old.real) {
        uint64_t before = __sync_val_compare_and_swap((uint64_t *)at, old.bits, new.bits);
        if (before == old.bits)
            break;
        old.bits = before;
    }
}

static void lower_small(float *at, float value) {
    float old;
    __atomic_load(at, &old, __ATOMIC_RELAXED);
    while (value < old && !__atomic_compare_exchange(at, &old, &value, 0, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) {
    }
}

static void of_groups(void) {
    static double expected_least[GROUPS], expected_greatest[GROUPS];
    static float expected_small[GROUPS];
    for (int g = 0; g < GROUPS; g++) {
        least[g] = expected_least[g] = INFINITY;
        greatest[g] = expected_greatest[g] = -INFINITY;
        small_least[g] = expected_small[g] = INFINITY;
    }
    for (long i = 0; i < n; i++) {
        int g = group_of(i);
        expected_least[g] = least_of(expected_least[g], values[i]);
        expected_greatest[g] = greatest_of(expected_greatest[g], values[i]);
        expected_small[g] = (float)least_of(expected_small[g], (float)values[i]);
    }
#pragma omp parallel for schedule(static, 7)
    for (long i = 0; i < n; i++) {
        int g = group_of(i);
        lower(&least[g], values[i]);
        raise_to(&greatest[g], values[i]);
        lower_small(&small_least[g], (float)values[i]);
    }
    CHECK(!memcmp(least, expected_least, sizeof least) && !memcmp(greatest, expected_greatest, sizeof greatest));
    CHECK(!memcmp(small_least, expected_small, sizeof small_least));
}

static void of_all(void) {
    double low = INFINITY, high = -INFINITY, expected_low = INFINITY, expected_high = -INFINITY;
    for (long i = 0; i < n; i++) {
        expected_low = least_of(expected_low, values[i]);
        expected_high = greatest_of(expected_high, values[i]);
    }
#pragma omp parallel for schedule(dynamic, 100)
    for (long i = 0; i < n; i++) {
        lower(&low, values[i]);
        raise_to(&high, values[i]);
    }
    CHECK(low == expected_low && high == expected_high);
}

/* The upper half is a value's order as an unsigned number, the lower its place. */
static uint64_t packed(long i) {
    float value = (float)values[i];
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    bits = bits >> 31 ? ~bits : bits | 0x80000000u;
    return (uint64_t)bits << 32 | (uint32_t)i;
}

static void with_place(void) {
    uint64_t best = UINT64_MAX, expected = UINT64_MAX;
    for (long i = 0; i < n; i++)
        expected = packed(i) < expected ? packed(i) : expected;
#pragma omp parallel for
    for (long i = 0; i < n; i++) {
        uint64_t mine = packed(i), old = __atomic_load_n(&best, __ATOMIC_RELAXED);
        while (mine < old && !__atomic_compare_exchange_n(&best, &old, mine, 1, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
        }
    }
    CHECK(best == expected);
}

int main(int argc, char **argv) {
    n = size_of(argc, argv, 60000);
    values = malloc((size_t)n * sizeof *values);
    for (long i = 0; i < n; i++)
        values[i] = value_of(i);
    of_groups();
    of_all();
    with_place();
    free(values);
    return result();
}
