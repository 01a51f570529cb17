/* An MPI program whose ranks run OpenMP regions: a halo exchange between neighbours by non-blocking messages, collectives on
 * large arrays, and a one-sided window. Prints one line of sums, the same for any number of ranks and threads. */
#include <mpi.h>
#include <omp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 1536, COLUMNS = 1024, STEPS = 12 };

int main(int argc, char **argv) {
    int got, rank, ranks;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &got);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int mine = ROWS / ranks;
    uint64_t *now = malloc((size_t)(mine + 2) * COLUMNS * 8), *next = malloc((size_t)(mine + 2) * COLUMNS * 8);
#define AT(a, i, j) a[(size_t)(i) * COLUMNS + (j)]
#pragma omp parallel for
    for (int i = 1; i <= mine; i++)
        for (int j = 0; j < COLUMNS; j++)
            AT(now, i, j) = (uint64_t)(rank * mine + i - 1) * 31 + j * 17;
    int up = (rank + ranks - 1) % ranks, down = (rank + 1) % ranks;
    for (int step = 0; step < STEPS; step++) {
        MPI_Request wait[4];
        MPI_Irecv(&AT(now, 0, 0), COLUMNS, MPI_UINT64_T, up, 1, MPI_COMM_WORLD, &wait[0]);
        MPI_Irecv(&AT(now, mine + 1, 0), COLUMNS, MPI_UINT64_T, down, 2, MPI_COMM_WORLD, &wait[1]);
        MPI_Isend(&AT(now, mine, 0), COLUMNS, MPI_UINT64_T, down, 1, MPI_COMM_WORLD, &wait[2]);
        MPI_Isend(&AT(now, 1, 0), COLUMNS, MPI_UINT64_T, up, 2, MPI_COMM_WORLD, &wait[3]);
        MPI_Waitall(4, wait, MPI_STATUSES_IGNORE);
#pragma omp parallel for schedule(static)
        for (int i = 1; i <= mine; i++)
            for (int j = 0; j < COLUMNS; j++)
                AT(next, i, j) = AT(now, i - 1, j) + AT(now, i + 1, j) + 3 * AT(now, i, j) + AT(now, i, (j + 1) % COLUMNS);
        uint64_t *other = now;
        now = next;
        next = other;
    }
    /* A collective on a large array: every column's sum over all ranks, and everything gathered on each rank. */
    uint64_t *column = calloc(COLUMNS, 8), *all = calloc(COLUMNS, 8);
#pragma omp parallel for
    for (int j = 0; j < COLUMNS; j++)
        for (int i = 1; i <= mine; i++)
            column[j] += AT(now, i, j);
    MPI_Allreduce(column, all, COLUMNS, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    uint64_t *whole = malloc((size_t)ROWS * COLUMNS * 8);
    MPI_Allgather(&AT(now, 1, 0), mine * COLUMNS, MPI_UINT64_T, whole, mine * COLUMNS, MPI_UINT64_T, MPI_COMM_WORLD);
    uint64_t gathered = 0;
#pragma omp parallel for reduction(+ : gathered)
    for (long i = 0; i < (long)ROWS * COLUMNS; i++)
        gathered += whole[i] * (i % 7 + 1);
    /* A window on memory of the program's, and one on memory that MPI makes: each rank puts a block into its neighbour's. */
    enum { BLOCK = 1 << 18 };
    uint64_t *open = calloc(BLOCK, 8), *made, sum = 0;
    MPI_Win window, own;
    MPI_Win_create(open, BLOCK * 8, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    MPI_Win_allocate(BLOCK * 8, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &made, &own);
    MPI_Win_fence(0, window);
    MPI_Put(whole, BLOCK, MPI_UINT64_T, down, 0, BLOCK, MPI_UINT64_T, window);
    MPI_Win_fence(0, window);
    MPI_Win_fence(0, own);
    MPI_Accumulate(whole + BLOCK, BLOCK, MPI_UINT64_T, up, 0, BLOCK, MPI_UINT64_T, MPI_REPLACE, own);
    MPI_Win_fence(0, own);
#pragma omp parallel for reduction(+ : sum)
    for (long i = 0; i < BLOCK; i++)
        sum += open[i] * 3 + made[i];
    uint64_t columns = 0, least;
    for (int j = 0; j < COLUMNS; j++)
        columns += all[j] * (j + 1);
    MPI_Reduce(&sum, &least, 1, MPI_UINT64_T, MPI_MIN, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("%lx %lx %lx %s\n", columns, gathered, least, least == sum ? "alike" : "unlike");
    MPI_Win_free(&window);
    MPI_Win_free(&own);
    MPI_Finalize();
    return 0;
}
