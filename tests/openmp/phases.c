/* Regions that add to shared memory by atomics in some of the phases between their barriers, and write beside each other in the others:
 * on the same pages, with a turn of one kind after a turn of the other, in functions and loops. */
#include "check.h"
#include <string.h>

enum { WORDS = 3000, TURNS = 12 };

static long beside[WORDS], added[WORDS], total;

/* Each worker its own words; every page has words of all. */
static void write_own(int me, int all, long turn) {
    for (int i = me; i < WORDS; i += all) beside[i] += turn * i;
}

static void add_to_all(int me) {
    for (int i = 0; i < WORDS; i += 61) __atomic_fetch_add(&added[(i + me * 7) % WORDS], i, __ATOMIC_RELAXED);
}

static void check_own(long turns) {
    for (long i = 0; i < WORDS; i++) CHECK(beside[i] == i * turns * (turns - 1) / 2);
}

static void check_added(long turns) {
    long sum = 0, expected = 0;
    for (int i = 0; i < WORDS; i++) sum += added[i];
    for (int i = 0; i < WORDS; i += 61) expected += i;
    CHECK(sum == expected * turns * omp_get_max_threads());
}

static void begin(void) {
    memset(beside, 0, sizeof beside);
    memset(added, 0, sizeof added);
    total = 0;
}

/* As a reduction behind a loop: a region each. */
static void at_the_end(void) {
    begin();
    for (long turn = 0; turn < TURNS; turn++) {
#pragma omp parallel reduction(+ : total)
        {
            int me = omp_get_thread_num(), all = omp_get_num_threads();
            write_own(me, all, turn);
#pragma omp barrier
            total += beside[(me + 1) % all];
        }
    }
    check_own(TURNS);
    long expected = 0, now = 0;
    for (long turn = 0; turn < TURNS; turn++) {
        now += turn;
        for (long i = 0; i < omp_get_max_threads(); i++) expected += i * now;
    }
    CHECK(total == expected);
}

static void at_the_begin(void) {
    begin();
    for (long turn = 0; turn < TURNS; turn++) {
#pragma omp parallel
        {
            add_to_all(omp_get_thread_num());
#pragma omp barrier
            write_own(omp_get_thread_num(), omp_get_num_threads(), turn);
        }
    }
    check_own(TURNS), check_added(TURNS);
}

static void between(void) {
    begin();
    for (long turn = 0; turn < TURNS; turn += 2) {
#pragma omp parallel
        {
            int me = omp_get_thread_num(), all = omp_get_num_threads();
            write_own(me, all, turn);
#pragma omp barrier
            add_to_all(me);
#pragma omp barrier
            write_own((me + 1) % all, all, turn + 1);
        }
    }
    check_own(TURNS), check_added(TURNS / 2);
}

/* One region, whose barriers come again and again. */
static void in_a_loop(void) {
    begin();
#pragma omp parallel
    {
        int me = omp_get_thread_num(), all = omp_get_num_threads();
        for (long turn = 0; turn < TURNS; turn++) {
            write_own((int)(me + turn) % all, all, turn);
#pragma omp barrier
            add_to_all(me);
#pragma omp barrier
            CHECK(beside[WORDS - 1] == (WORDS - 1) * turn * (turn + 1) / 2);
#pragma omp barrier
        }
    }
    check_own(TURNS), check_added(TURNS);
}

int main(void) {
    at_the_end();
    at_the_begin();
    between();
    in_a_loop();
    return result();
}
