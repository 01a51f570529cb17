/* Threads in a pipeline, each of which waits for a flag of its neighbour in memory, as NPB's LU does it: the sweep over a
 * plane needs the rows of the thread before. If a flag is not seen it hangs; if the data behind a flag is not, the result is
 * wrong. Compared with the same sweeps by one thread, bit for bit. ARGV[1] is the number of cells along an edge. */
#include "check.h"
#include "spin.h"
#include <string.h>

enum { MOST_THREADS = 64, SWEEPS = 4, PLANES = 24, APART = 4096 };

static int side;
static double *grid, *expected;

/* As in NPB: flags side by side, all in one page. */
static volatile int flag[MOST_THREADS];
/* The same with each flag in a page of its own, and sequence numbers that are never reset. */
static struct {
    int sequence;
    char apart[APART - sizeof(int)];
} lane[MOST_THREADS];

static inline double *cell(double *of, int plane, int row, int column) {
    return &of[((size_t)plane * (size_t)side + (size_t)row) * (size_t)side + (size_t)column];
}

/* Rows `first` to before `end` of a plane: each cell from those above it and to its left, and the plane before. */
static void sweep_rows(double *of, int plane, int first, int end) {
    for (int row = first; row < end; row++)
        for (int column = 0; column < side; column++) {
            double sum = *cell(of, plane, row, column);
            if (row > 0)
                sum += 0.3 * *cell(of, plane, row - 1, column);
            if (column > 0)
                sum += 0.2 * *cell(of, plane, row, column - 1);
            if (plane > 0)
                sum += 0.1 * *cell(of, plane - 1, row, column);
            *cell(of, plane, row, column) = 0.6 * sum;
        }
}

/* The other way round. */
static void sweep_rows_back(double *of, int plane, int first, int end) {
    for (int row = end - 1; row >= first; row--)
        for (int column = side - 1; column >= 0; column--) {
            double sum = *cell(of, plane, row, column);
            if (row < side - 1)
                sum += 0.25 * *cell(of, plane, row + 1, column);
            if (column < side - 1)
                sum += 0.15 * *cell(of, plane, row, column + 1);
            if (plane < PLANES - 1)
                sum += 0.05 * *cell(of, plane + 1, row, column);
            *cell(of, plane, row, column) = 0.7 * sum;
        }
}

static void start_with(double *of) {
    for (size_t i = 0; i < (size_t)PLANES * (size_t)side * (size_t)side; i++)
        of[i] = (double)(mixed(i) >> 11) * 0x1p-53;
}

/* Waits until the neighbour has set its flag, and takes it. */
static void wait_for(int neighbour) {
    struct waiting w = {0};
    while (flag[neighbour] == 0) {
#pragma omp flush
        spin(&w);
    }
    flag[neighbour] = 0;
#pragma omp flush
}

/* Sets one's own flag, once the neighbour has taken the last. */
static void signal_from(int me) {
    struct waiting w = {0};
#pragma omp flush
    while (flag[me] == 1) {
#pragma omp flush
        spin(&w);
    }
    flag[me] = 1;
#pragma omp flush
}

static void by_flags(void) {
    start_with(grid);
    memset((void *)flag, 0, sizeof flag);
#pragma omp parallel
    {
        int me = omp_get_thread_num(), threads = omp_get_num_threads();
        int first = side * me / threads, end = side * (me + 1) / threads;
        for (int sweep = 0; sweep < SWEEPS; sweep++) {
            for (int plane = 0; plane < PLANES; plane++) {
                if (me > 0)
                    wait_for(me - 1);
                sweep_rows(grid, plane, first, end);
                if (me < threads - 1)
                    signal_from(me);
            }
#pragma omp barrier
            for (int plane = PLANES - 1; plane >= 0; plane--) {
                if (me < threads - 1)
                    wait_for(me + 1);
                sweep_rows_back(grid, plane, first, end);
                if (me > 0)
                    signal_from(me);
            }
#pragma omp barrier
        }
    }
}

static void wait_for_sequence(int neighbour, int sequence) {
    struct waiting w = {0};
    while (__atomic_load_n(&lane[neighbour].sequence, __ATOMIC_ACQUIRE) < sequence)
        spin(&w);
}

/* One region without a barrier in it: a thread may be planes ahead of the next. */
static void by_sequence(void) {
    start_with(grid);
    memset(lane, 0, sizeof lane);
#pragma omp parallel
    {
        int me = omp_get_thread_num(), threads = omp_get_num_threads(), done = 0;
        int first = side * me / threads, end = side * (me + 1) / threads;
        for (int sweep = 0; sweep < SWEEPS; sweep++) {
            for (int plane = 0; plane < PLANES; plane++) {
                if (me > 0)
                    wait_for_sequence(me - 1, done + 1);
                sweep_rows(grid, plane, first, end);
                __atomic_store_n(&lane[me].sequence, ++done, __ATOMIC_RELEASE);
            }
            /* The last thread turns when it has all planes, the others follow it back; at the first it turns again. */
            for (int plane = PLANES - 1; plane >= 0; plane--) {
                if (me < threads - 1)
                    wait_for_sequence(me + 1, done + 1);
                sweep_rows_back(grid, plane, first, end);
                __atomic_store_n(&lane[me].sequence, ++done, __ATOMIC_RELEASE);
            }
        }
    }
}

static void compare(void) {
    long wrong = 0;
    for (size_t i = 0; i < (size_t)PLANES * (size_t)side * (size_t)side; i++)
        wrong += grid[i] != expected[i];
    CHECK(wrong == 0);
}

int main(int argc, char **argv) {
    side = (int)size_of(argc, argv, 40);
    size_t bytes = (size_t)PLANES * (size_t)side * (size_t)side * sizeof *grid;
    grid = malloc(bytes);
    expected = malloc(bytes);
    start_with(expected);
    for (int sweep = 0; sweep < SWEEPS; sweep++) {
        for (int plane = 0; plane < PLANES; plane++)
            sweep_rows(expected, plane, 0, side);
        for (int plane = PLANES - 1; plane >= 0; plane--)
            sweep_rows_back(expected, plane, 0, side);
    }
    by_flags();
    compare();
    by_sequence();
    compare();
    free(expected);
    free(grid);
    return result();
}
