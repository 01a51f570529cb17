/* Sparse LU: a matrix of blocks, of which many are empty, is factorised without pivoting, by tasks with dependences.
 *
 * Memory layout: `blocks`, one pointer for each place, and a block on the heap for each place that is not empty. A block is empty
 * at first unless it lies on one of the three middle diagonals or is one in four of the others. A product of two blocks fills a place
 * that was empty. One thread makes all tasks, in the order of the algorithm; which block each of them reads and writes is told as its
 * dependences.
 *
 * Verified: both factors times a random vector are the matrix times that vector, for three vectors after each factorisation, to
 * 1e-10 of the greatest element. --iterations N factorises N matrices.
 */
#include "program.h"

#include <math.h>

#define VECTORS 3
#define TOLERANCE 1e-10

typedef struct {
    char name;
    int blocks, side, rounds;
} sparselu_class;

static const sparselu_class classes[] = {{'S', 12, 16, 1}, {'W', 24, 40, 1}, {'A', 36, 80, 1}, {'B', 48, 120, 1}, {'C', 64, 160, 1}};

/* Factorises a block on the diagonal: the lower factor has ones there. */
static void factorise(double *d, int side) {
    for (int k = 0; k < side; k++)
        for (int i = k + 1; i < side; i++) {
            double f = d[i * side + k] /= d[k * side + k];
#pragma omp simd
            for (int j = k + 1; j < side; j++) d[i * side + j] -= f * d[k * side + j];
        }
}

/* Solves with the lower factor of the diagonal block, for a block to the right of it. */
static void solve_lower(double *restrict b, const double *restrict d, int side) {
    for (int k = 0; k < side; k++)
        for (int i = k + 1; i < side; i++) {
            double f = d[i * side + k];
#pragma omp simd
            for (int j = 0; j < side; j++) b[i * side + j] -= f * b[k * side + j];
        }
}

/* Solves with the upper factor of the diagonal block, for a block below it. */
static void solve_upper(double *restrict b, const double *restrict d, int side) {
    for (int i = 0; i < side; i++)
        for (int k = 0; k < side; k++) {
            double f = b[i * side + k] /= d[k * side + k];
#pragma omp simd
            for (int j = k + 1; j < side; j++) b[i * side + j] -= f * d[k * side + j];
        }
}

/* Takes the product of two blocks from a third. */
static void take_product(double *restrict out, const double *restrict a, const double *restrict b, int side) {
    for (int i = 0; i < side; i++)
        for (int k = 0; k < side; k++) {
            double f = a[i * side + k];
#pragma omp simd
            for (int j = 0; j < side; j++) out[i * side + j] -= f * b[k * side + j];
        }
}

/* Makes the tasks of all steps. */
static void decompose(double **blocks, int count, int side) {
    for (int k = 0; k < count; k++) {
        double *d = blocks[k * count + k];
#pragma omp task depend(inout : d[0])
        factorise(d, side);
        for (int j = k + 1; j < count; j++) {
            double *b = blocks[k * count + j];
            if (!b) continue;
#pragma omp task depend(in : d[0]) depend(inout : b[0])
            solve_lower(b, d, side);
        }
        for (int i = k + 1; i < count; i++) {
            double *b = blocks[i * count + k];
            if (!b) continue;
#pragma omp task depend(in : d[0]) depend(inout : b[0])
            solve_upper(b, d, side);
        }
        for (int i = k + 1; i < count; i++) {
            double *a = blocks[i * count + k];
            if (!a) continue;
            for (int j = k + 1; j < count; j++) {
                double *b = blocks[k * count + j];
                if (!b) continue;
                double **at = &blocks[i * count + j];
                if (!*at) {
                    *at = program_allocated((size_t)side * side, sizeof **at);
                    memset(*at, 0, (size_t)side * side * sizeof **at);
                }
                double *out = *at;
#pragma omp task depend(in : a[0], b[0]) depend(inout : out[0])
                take_product(out, a, b, side);
            }
        }
    }
}

/* Fills the blocks that are not empty; the diagonal is so large that no pivot is needed. */
static void make_matrix(double **blocks, int count, int side, uint64_t round) {
    size_t size = (size_t)side * side;
    for (int at = 0; at < count * count; at++) {
        int i = at / count, j = at % count;
        free(blocks[at]);
        blocks[at] = NULL;
        if (abs(i - j) <= 1 || program_mix((uint64_t)at) % 4 == 0)
            blocks[at] = program_allocated(size, sizeof **blocks);
    }
#pragma omp parallel for schedule(dynamic)
    for (int at = 0; at < count * count; at++) {
        double *block = blocks[at];
        if (!block) continue;
        for (size_t e = 0; e < size; e++) block[e] = program_random((((uint64_t)at << 20) + e) * 64 + round) - 0.5;
        if (at / count == at % count)
            for (int i = 0; i < side; i++) block[i * side + i] += count * side;
    }
}

/* Which part of a matrix of blocks is multiplied: of the factors, one element more or less than the diagonal counts. */
typedef enum { ALL, LOWER, UPPER } which;

/* Computes out = matrix * vector; the lower factor has ones on the diagonal. */
static void apply(double *out, double *const *blocks, const double *vector, which part, int count, int side) {
#pragma omp parallel for schedule(static)
    for (int i = 0; i < count * side; i++) {
        double sum = part == LOWER ? vector[i] : 0.0;
        for (int j = 0; j < count; j++) {
            const double *block = blocks[i / side * count + j];
            int row = i / side, from = 0, to = side;
            if (!block || (part == LOWER && j > row) || (part == UPPER && j < row)) continue;
            if (j == row && part == LOWER) to = i % side;
            if (j == row && part == UPPER) from = i % side;
            for (int e = from; e < to; e++) sum += block[i % side * side + e] * vector[j * side + e];
        }
        out[i] = sum;
    }
}

int main(int argc, char **argv) {
    program_options o = program_parse(argc, argv);
    const sparselu_class *c = classes;
    while (c->name != o.class_) c++;
    int rounds = o.iterations ? o.iterations : c->rounds, count = c->blocks, side = c->side;
    size_t rows = (size_t)count * side;

    double **blocks = program_allocated((size_t)count * count, sizeof *blocks);
    memset(blocks, 0, (size_t)count * count * sizeof *blocks);
    double *vectors = program_allocated((2 * VECTORS + 2) * rows, sizeof *vectors);
    double *products = vectors + VECTORS * rows, *once = products + VECTORS * rows, *twice = once + rows;
    printf("Sparse LU class %c: %d x %d blocks of %d x %d, %d times\n", c->name, count, count, side, side, rounds);

    double seconds = 0.0, error = 0.0;
    for (int r = 0; r < rounds; r++) {
        make_matrix(blocks, count, side, (uint64_t)r);
        for (int v = 0; v < VECTORS; v++) {
            for (size_t i = 0; i < rows; i++) vectors[v * rows + i] = program_random(~(v * rows + i)) - 0.5;
            apply(products + v * rows, blocks, vectors + v * rows, ALL, count, side);
        }
        double start = program_seconds();
#pragma omp parallel
#pragma omp single
        decompose(blocks, count, side);
        seconds += program_seconds() - start;
        for (int v = 0; v < VECTORS; v++) {
            double off = 0.0, greatest = 0.0;
            apply(once, blocks, vectors + v * rows, UPPER, count, side);
            apply(twice, blocks, once, LOWER, count, side);
            for (size_t i = 0; i < rows; i++) {
                double wanted = products[v * rows + i], d = fabs(twice[i] - wanted);
                greatest = fmax(greatest, fabs(wanted));
                if (!(d <= off)) off = d;
            }
            if (!(off / greatest <= error)) error = off / greatest;
        }
    }

    printf("Off from the matrix's products by at most %.3e\n", error);
    uint64_t sum = PROGRAM_CHECKSUM_SEED;
    for (int at = 0; at < count * count; at++)
        if (blocks[at]) {
            uint64_t of_block = program_checksum_rows(blocks[at], side, side * sizeof **blocks);
            sum = program_checksum(sum, &of_block, sizeof of_block);
            free(blocks[at]);
        }
    free(vectors);
    free(blocks);
    /* Each factorisation is verified, whatever their number. */
    return program_verdict(sum, seconds, 1, error <= TOLERANCE, error, 0.0, rounds, c->rounds);
}
