/* Functions that call the barrier: for each phase, in order, 0 if it is plain and 1 if it synchronises otherwise; `none` where a function
 * that is called has a barrier of its own, so that the phases are not known. */
#include <omp.h>

long shared, turns;

#define KEPT __attribute__((noinline, noclone, used))

KEPT void add(long n) { __atomic_fetch_add(&shared, n, __ATOMIC_SEQ_CST); }

KEPT void meet(void) {
#pragma omp barrier
    shared++;
}

KEPT void phases_01_reduction(double *a, long n) {
    for (long i = 0; i < n; i++) a[i] *= 2;
#pragma omp barrier
    __atomic_fetch_add(&shared, n, __ATOMIC_SEQ_CST);
}

KEPT void phases_01_in_a_call(double *a, long n) {
    for (long i = 0; i < n; i++) a[i] *= 2;
#pragma omp barrier
    add(n);
    a[0] = 1;
}

KEPT void phases_10_before(double *a, long n) {
    add(n);
#pragma omp barrier
    for (long i = 0; i < n; i++) a[i] *= 2;
}

KEPT void phases_010_between(double *a, long n) {
    for (long i = 0; i < n; i++) a[i] *= 2;
#pragma omp barrier
    add(n);
#pragma omp barrier
    for (long i = 0; i < n; i++) a[i] *= 3;
}

KEPT void phases_01_behind_a_loop_of_barriers(double *a, long n) {
    do {
        for (long i = 0; i < n; i++) a[i] *= 2;
#pragma omp barrier
    } while (turns-- > 0);
    add(n);
}

/* Some workers may take one branch, others the other. */
KEPT void phases_011_either(double *a, long n) {
    if (omp_get_thread_num() & 1) {
        a[0] = 1;
#pragma omp barrier
        a[1] = 1;
    } else {
        a[2] = 1;
#pragma omp barrier
        add(n);
    }
    a[3] = 1;
}

KEPT void phases_0_without_barrier(double *a, long n) {
    for (long i = 0; i < n; i++) a[i] *= 2;
}

KEPT void phases_none_in_a_call(double *a, long n) {
    for (long i = 0; i < n; i++) a[i] *= 2;
    meet();
    add(n);
}

int main(void) {
    double a[8] = {0};
    phases_01_reduction(a, 8), phases_01_in_a_call(a, 8), phases_10_before(a, 8), phases_010_between(a, 8);
    phases_01_behind_a_loop_of_barriers(a, 8), phases_011_either(a, 8), phases_0_without_barrier(a, 8);
    phases_none_in_a_call(a, 8);
    return 0;
}
