/* A barrier of the runtime, in which nothing was written, and the same barrier written with flags in the program's own memory.
 *
 * The second one is what a program for shared memory does: the threads count themselves in one word and wait for another to
 * turn, both in pages that the nodes keep coherent. Prints the median of a barrier over blocks of them, and what a region costs
 * that does nothing.
 */
#include <omp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

enum { BLOCKS = 21, EACH = 200, BLOCKS_OF_FLAGS = 11, EACH_OF_FLAGS = 40 };

static _Alignas(4096) int arrived;
static _Alignas(4096) volatile int sense;

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int n) {
    qsort(values, (size_t)n, sizeof *values, by_size);
    return values[n / 2];
}

/* Turns with every barrier. Yields while it waits, as there may be fewer CPUs than threads and agents. */
static void flag_barrier(int *mine, int threads) {
    *mine = !*mine;
    if (__atomic_add_fetch(&arrived, 1, __ATOMIC_SEQ_CST) == threads) {
        __atomic_store_n(&arrived, 0, __ATOMIC_SEQ_CST);
        sense = *mine;
    } else {
        while (sense != *mine) sched_yield();
    }
}

int main(void) {
    static double plain[BLOCKS], flags[BLOCKS_OF_FLAGS], regions[BLOCKS];
    for (int block = 0; block < BLOCKS; block++) {
        double begin = 0, end = 0;
#pragma omp parallel
        {
#pragma omp barrier
#pragma omp master
            begin = omp_get_wtime();
            for (int i = 0; i < EACH; i++) {
#pragma omp barrier
            }
#pragma omp master
            end = omp_get_wtime();
        }
        plain[block] = (end - begin) / EACH;
    }
    for (int block = 0; block < BLOCKS_OF_FLAGS; block++) {
        double begin = 0, end = 0;
#pragma omp parallel
        {
            int mine = sense;
#pragma omp barrier
#pragma omp master
            begin = omp_get_wtime();
            for (int i = 0; i < EACH_OF_FLAGS; i++) flag_barrier(&mine, omp_get_num_threads());
#pragma omp master
            end = omp_get_wtime();
        }
        flags[block] = (end - begin) / EACH_OF_FLAGS;
    }
    for (int block = 0; block < BLOCKS; block++) {
        const double begin = omp_get_wtime();
        for (int i = 0; i < EACH; i++) {
#pragma omp parallel
            { __asm__ volatile(""); }
        }
        regions[block] = (omp_get_wtime() - begin) / EACH;
    }
    printf("barrier_us %.3f\n", 1e6 * median(plain, BLOCKS));
    printf("flag_barrier_us %.3f\n", 1e6 * median(flags, BLOCKS_OF_FLAGS));
    printf("region_us %.3f\n", 1e6 * median(regions, BLOCKS));
    return 0;
}
