/* Lud: a dense matrix is decomposed into a lower and an upper triangular one in place, block by block and without
 * pivoting, in the manner of Rodinia's workload of that name.
 *
 * Memory layout: `matrix`, row by row on the heap, is all there is. A step works on blocks of 16 by 16: the master
 * decomposes the block on the diagonal; one region the blocks to its right and below it; another all blocks between
 * those, each worker with copies of the two blocks it multiplies on its stack. What is worked on shrinks with every
 * step, so a worker's part moves over the matrix.
 *
 * Verified: element (i, j) of the matrix is 10 r^|i-j|. Of such a matrix both factors are known, and also what is left to
 * decompose after m columns: 10 (r^|i-j| - r^(i+j-2(m-1))). All elements are compared, to 1e-8. --iterations N stops after
 * N steps (blocks of the diagonal), which is verified as well.
 */
#include "program.h"

#include <math.h>

#define BLOCK 16
#define SCALE 10.0
#define DECAY 0.001 /* r is exp(-DECAY) */
#define TOLERANCE 1e-8

typedef struct {
    char name;
    int n;
} lud_class;

static const lud_class classes[] = {{'S', 256}, {'W', 768}, {'A', 3840}, {'B', 7680}, {'C', 15360}};

static double *matrix;
static int n;

static inline double *at(int row, int column) {
    return &matrix[(size_t)row * n + column];
}

static void make_matrix(void) {
#pragma omp parallel for schedule(static)
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) *at(i, j) = SCALE * exp(-DECAY * abs(i - j));
}

/* The block on the diagonal, by the master. */
static void decompose_diagonal(int k) {
    for (int i = 0; i < BLOCK; i++) {
        double *row = at(k + i, k);
        for (int j = 0; j < i; j++) {
            const double *above = at(k + j, k);
            row[j] /= above[j];
            for (int c = j + 1; c < BLOCK; c++) row[c] -= row[j] * above[c];
        }
    }
}

/* The block at row k and column j: each row less the ones above it. */
static void solve_right(int k, int j) {
    for (int i = 1; i < BLOCK; i++) {
        double *row = at(k + i, j);
        for (int m = 0; m < i; m++) {
            const double *above = at(k + m, j), factor = *at(k + i, k + m);
#pragma omp simd
            for (int c = 0; c < BLOCK; c++) row[c] -= factor * above[c];
        }
    }
}

/* The block at row i and column k: each row by itself against the diagonal block's upper triangle. */
static void solve_below(int i, int k) {
    for (int r = 0; r < BLOCK; r++) {
        double *row = at(i + r, k);
        for (int m = 0; m < BLOCK; m++) {
            const double *upper = at(k + m, k);
            row[m] /= upper[m];
            for (int c = m + 1; c < BLOCK; c++) row[c] -= row[m] * upper[c];
        }
    }
}

/* The block at (i, j), less the product of the block to its left in column k and the block above it in row k. */
static void subtract_product(int i, int j, int k) {
    double left[BLOCK][BLOCK], above[BLOCK][BLOCK];
    for (int r = 0; r < BLOCK; r++) {
        memcpy(left[r], at(i + r, k), sizeof left[r]);
        memcpy(above[r], at(k + r, j), sizeof above[r]);
    }
    for (int r = 0; r < BLOCK; r++) {
        double *out = at(i + r, j), row[BLOCK];
        memcpy(row, out, sizeof row);
        for (int m = 0; m < BLOCK; m++) {
            double factor = left[r][m];
#pragma omp simd
            for (int c = 0; c < BLOCK; c++) row[c] -= factor * above[m][c];
        }
        memcpy(out, row, sizeof row);
    }
}

/* One block of the diagonal, and what follows from it in all that is right of and below it. */
static void step(int k) {
    int first = k + BLOCK, blocks = (n - first) / BLOCK;
    decompose_diagonal(k);
#pragma omp parallel for schedule(static)
    for (int b = 0; b < blocks; b++) {
        solve_right(k, first + b * BLOCK);
        solve_below(first + b * BLOCK, k);
    }
#pragma omp parallel for schedule(static)
    for (int b = 0; b < blocks * blocks; b++)
        subtract_product(first + b / blocks * BLOCK, first + b % blocks * BLOCK, k);
}

/* Returns the value of element (i, j) once `done` columns are eliminated. */
static inline double known(int i, int j, int done) {
    int low = i < j ? i : j, m = low < done ? low : done;
    double left = SCALE * exp(-DECAY * abs(i - j));
    if (m > 0) left *= 1.0 - exp(-2.0 * DECAY * (low - (m - 1)));
    /* A row of the upper factor is what was left when its turn came; below the diagonal that was divided by the pivot. */
    return i > j && j < done ? exp(-DECAY * (i - j)) : left;
}

static double greatest_error(int done) {
    double greatest = 0.0;
#pragma omp parallel for schedule(static) reduction(max : greatest)
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            double off = fabs(*at(i, j) - known(i, j, done));
            if (!(off <= greatest)) greatest = isnan(off) ? INFINITY : off;
        }
    return greatest;
}

/* Rows' checksums are taken in parallel and then checksummed in order. */
static uint64_t checksum_matrix(void) {
    uint64_t *sums = malloc((size_t)n * sizeof *sums);
    if (!sums) return 0;
#pragma omp parallel for schedule(static)
    for (int i = 0; i < n; i++) sums[i] = program_checksum(PROGRAM_CHECKSUM_SEED, at(i, 0), (size_t)n * sizeof *matrix);
    uint64_t sum = program_checksum(PROGRAM_CHECKSUM_SEED, sums, (size_t)n * sizeof *sums);
    free(sums);
    return sum;
}

int main(int argc, char **argv) {
    program_options o = program_parse(argc, argv);
    const lud_class *c = classes;
    while (c->name != o.class_) c++;
    n = c->n;
    int all = n / BLOCK, steps = o.iterations && o.iterations < all ? o.iterations : all;

    matrix = malloc((size_t)n * n * sizeof *matrix);
    if (!matrix) {
        fprintf(stderr, "lud: no memory for %d x %d elements\n", n, n);
        return 1;
    }
    make_matrix();
    printf("LUD class %c: %d x %d, %d of %d steps\n", c->name, n, n, steps, all);

    double start = program_seconds();
    for (int s = 0; s < steps; s++) step(s * BLOCK);
    double seconds = program_seconds() - start;

    double error = greatest_error(steps * BLOCK);
    printf("Greatest error: %.3e\n", error);
    uint64_t sum = checksum_matrix();
    free(matrix);
    return program_verdict(sum, seconds, 1, error <= TOLERANCE, error, 0.0, steps, all);
}
