/* Histograms whose bins all threads add to, by every kind of atomic addition that is compiled inline: an update is lost if
 * a bin's memory is not the same for all threads. ARGV[1] is the number of values. */
#include "check.h"
#include "spin.h"
#include <stdint.h>
#include <string.h>

enum { FEW = 16, MANY = 1 << 15 };

static long expected_few[FEW], expected_many[MANY];
static long few[FEW], many[MANY];
static double real_bins[MANY];
static float small_real_bins[FEW];
static uint8_t bytes[MANY];
static uint16_t shorts[MANY];
static _Atomic unsigned words[MANY];
static uint32_t *values;
static long n;

static inline int bin_of(long i) { return (int)(values[i] % MANY); }
static inline int few_of(long i) { return (int)(values[i] >> 16) % FEW; }

static void fill(void) {
    for (long i = 0; i < n; i++) {
        values[i] = (uint32_t)mixed((unsigned long)i);
        expected_many[bin_of(i)]++;
        expected_few[few_of(i)]++;
    }
}

static void by_omp_atomic(void) {
    memset(few, 0, sizeof few);
    memset(many, 0, sizeof many);
#pragma omp parallel for
    for (long i = 0; i < n; i++) {
#pragma omp atomic
        many[bin_of(i)]++;
#pragma omp atomic update
        few[few_of(i)] += 1;
    }
    CHECK(!memcmp(many, expected_many, sizeof many) && !memcmp(few, expected_few, sizeof few));
}

static void by_fetch_add(void) {
    memset(few, 0, sizeof few);
    memset(many, 0, sizeof many);
#pragma omp parallel for schedule(static, 64)
    for (long i = 0; i < n; i++) {
        __atomic_fetch_add(&many[bin_of(i)], 1, __ATOMIC_RELAXED);
        __atomic_add_fetch(&few[few_of(i)], 1, __ATOMIC_SEQ_CST);
    }
    CHECK(!memcmp(many, expected_many, sizeof many) && !memcmp(few, expected_few, sizeof few));
}

/* Bins narrower than a word: those beside them belong to other threads. */
static void of_other_sizes(void) {
#pragma omp parallel for schedule(dynamic, 1000)
    for (long i = 0; i < n; i++) {
#pragma omp atomic
        bytes[bin_of(i)]++;
        __sync_fetch_and_add(&shorts[bin_of(i)], 1);
        words[bin_of(i)]++;
    }
    for (int b = 0; b < MANY; b++) {
        CHECK(bytes[b] == (uint8_t)expected_many[b] && shorts[b] == (uint16_t)expected_many[b]);
        CHECK(words[b] == (unsigned)expected_many[b]);
    }
}

/* Additions of real numbers are loops of compare and swap. Those here are exact. */
static void of_reals(void) {
#pragma omp parallel for
    for (long i = 0; i < n; i++) {
#pragma omp atomic
        real_bins[bin_of(i)] += 0.5;
        if (i % 16 == 0) {
#pragma omp atomic
            small_real_bins[few_of(i)] += 1.0f;
        }
    }
    long sixteenths = 0;
    float sum = 0;
    for (int b = 0; b < MANY; b++)
        CHECK(real_bins[b] == 0.5 * (double)expected_many[b]);
    for (long i = 0; i < n; i += 16)
        sixteenths++;
    for (int b = 0; b < FEW; b++)
        sum += small_real_bins[b];
    CHECK(sum == (float)sixteenths);
}

/* Places in a list are handed out once each. */
static void by_capture(void) {
    long next = 0, *list = calloc((size_t)n, sizeof *list);
#pragma omp parallel for
    for (long i = 0; i < n; i++) {
        long at;
#pragma omp atomic capture
        at = next++;
        list[at] += i + 1;
    }
    CHECK(next == n);
    long sum = 0, empty = 0;
    for (long i = 0; i < n; i++) {
        sum += list[i];
        empty += list[i] == 0;
    }
    CHECK(sum == n * (n + 1) / 2 && empty == 0);
    free(list);
}

/* In a region that also writes plain data, its own part of each page. */
static void beside_plain_stores(void) {
    long *plain = calloc((size_t)n, sizeof *plain), total = 0;
    memset(many, 0, sizeof many);
#pragma omp parallel
    {
        int me = omp_get_thread_num(), threads = omp_get_num_threads();
        for (long i = me; i < n; i += threads) {
            plain[i] = i;
            __atomic_fetch_add(&many[bin_of(i)], 1, __ATOMIC_RELAXED);
            if (i % 8 == 0)
                __atomic_fetch_add(&total, 8, __ATOMIC_RELAXED);
        }
    }
    CHECK(!memcmp(many, expected_many, sizeof many) && total == (n + 7) / 8 * 8);
    for (long i = 0; i < n; i++)
        CHECK(plain[i] == i);
    free(plain);
}

int main(int argc, char **argv) {
    n = size_of(argc, argv, 60000);
    values = malloc((size_t)n * sizeof *values);
    fill();
    by_omp_atomic();
    by_fetch_add();
    of_other_sizes();
    of_reals();
    by_capture();
    beside_plain_stores();
    free(values);
    return result();
}
