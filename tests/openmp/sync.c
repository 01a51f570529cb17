/* Mutual exclusion and barriers. */
#include "check.h"

static long a, b, c, d;
static long double e;

static void exclusion(void) {
    enum { ROUNDS = 2000 };
    a = b = c = d = 0;
    e = 0;
#pragma omp parallel
    for (int i = 0; i < ROUNDS; i++) {
#pragma omp critical
        a++;
#pragma omp critical(other)
        b++;
#pragma omp critical(third)
        c++;
#pragma omp atomic
        d++;
#pragma omp atomic
        e += 1;
    }
    long all = (long)ROUNDS * omp_get_max_threads();
    CHECK(a == all && b == all && c == all && d == all && e == all);
}

static void locks(void) {
    omp_lock_t lock, hinted;
    omp_nest_lock_t nest;
    omp_init_lock(&lock);
    omp_init_lock(&hinted);
    omp_init_nest_lock(&nest);
    a = b = c = 0;
    int missed = 0;
#pragma omp parallel reduction(+ : missed)
    for (int i = 0; i < 1000; i++) {
        omp_set_lock(&lock);
        a++;
        omp_unset_lock(&lock);
        while (!omp_test_lock(&hinted))
            missed++;
        b++;
        omp_unset_lock(&hinted);
        omp_set_nest_lock(&nest);
        CHECK(omp_test_nest_lock(&nest) == 2);
        c++;
        omp_set_nest_lock(&nest);
        c++;
        omp_unset_nest_lock(&nest);
        omp_unset_nest_lock(&nest);
        omp_unset_nest_lock(&nest);
    }
    long all = 1000L * omp_get_max_threads();
    CHECK(a == all && b == all && c == 2 * all);
    omp_destroy_lock(&lock);
    omp_destroy_lock(&hinted);
    omp_destroy_nest_lock(&nest);
}

static void barriers(void) {
    static int at[64];
#pragma omp parallel
    {
        int me = omp_get_thread_num(), n = omp_get_num_threads();
        for (int round = 1; round <= 300; round++) {
            at[me] = round;
#pragma omp barrier
            for (int i = 0; i < n; i++)
                CHECK(at[i] == round);
#pragma omp barrier
        }
    }
}

int main(void) {
    exclusion();
    locks();
    barriers();
    double before = omp_get_wtime();
    CHECK(omp_get_wtick() > 0 && omp_get_wtime() >= before);
    return result();
}
