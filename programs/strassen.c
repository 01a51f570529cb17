/* Strassen: two square matrices are multiplied by Strassen's method, with tasks that make tasks.
 *
 * Memory layout: `left`, `right` and `product`, row by row on the heap. A level allocates a block for its seven products of
 * half the side, and each of their tasks a block for the two sums that it multiplies; both are freed when the level is
 * done. So blocks of many sizes come and go, and are allocated by one thread and used by another. At 64 rows a task
 * multiplies as the definition says.
 *
 * Verified: the product times a random vector is the left matrix times (the right one times the vector), as Freivalds
 * proposed, for three vectors after each multiplication, to 1e-10 of the greatest element. --iterations N multiplies N
 * times: the left matrix by what the multiplication before gave.
 */
#include "program.h"

#include <math.h>

#define LEAF 64
#define VECTORS 3
#define TOLERANCE 1e-10

typedef struct {
    char name;
    int side, rounds;
} strassen_class;

static const strassen_class classes[] = {{'S', 256, 1}, {'W', 1024, 1}, {'A', 2048, 1}, {'B', 4096, 1}, {'C', 8192, 1}};

/* A square part of a matrix whose rows are `stride` elements apart. */
typedef struct {
    double *at;
    size_t stride;
} part;

/* The quarter of a part at row `down` and column `across`, each 0 or 1, of quarters with `half` rows. */
static inline part quarter(part whole, int half, int down, int across) {
    return (part){whole.at + (size_t)down * half * whole.stride + (size_t)across * half, whole.stride};
}

/* Computes out = a + sign * b. */
static void add(part out, part a, part b, double sign, int side) {
    for (int i = 0; i < side; i++) {
        double *o = out.at + i * out.stride;
        const double *x = a.at + i * a.stride, *y = b.at + i * b.stride;
#pragma omp simd
        for (int j = 0; j < side; j++) o[j] = x[j] + sign * y[j];
    }
}

static void multiply_leaf(part out, part a, part b, int side) {
    for (int i = 0; i < side; i++) {
        double row[LEAF] = {0.0};
        for (int k = 0; k < side; k++) {
            double factor = a.at[i * a.stride + k];
            const double *y = b.at + k * b.stride;
#pragma omp simd
            for (int j = 0; j < side; j++) row[j] += factor * y[j];
        }
        memcpy(out.at + i * out.stride, row, (size_t)side * sizeof *row);
    }
}

static void multiply(part out, part a, part b, int side);

/* A factor of one of the seven products: a quarter, or the sum of two (the second times `sign`, which is 0 for none). */
typedef struct {
    int down, across;
    double sign;
    int other_down, other_across;
} factor;

static const factor left_factors[7] = {
    {0, 0, 1, 1, 1}, {1, 0, 1, 1, 1}, {0, 0, 0, 0, 0}, {1, 1, 0, 0, 0}, {0, 0, 1, 0, 1}, {1, 0, -1, 0, 0}, {0, 1, -1, 1, 1},
};
static const factor right_factors[7] = {
    {0, 0, 1, 1, 1}, {0, 0, 0, 0, 0}, {0, 1, -1, 1, 1}, {1, 0, -1, 0, 0}, {1, 1, 0, 0, 0}, {0, 0, 1, 0, 1}, {1, 0, 1, 1, 1},
};

/* Returns the factor of a product; a sum is written to `space`. */
static part factor_of(part whole, const factor *f, int half, double *space) {
    part first = quarter(whole, half, f->down, f->across);
    if (f->sign == 0.0) return first;
    part sum = {space, half};
    add(sum, first, quarter(whole, half, f->other_down, f->other_across), f->sign, half);
    return sum;
}

/* Puts the four quarters together from the seven products. */
static void combine(part out, const double *products, int half) {
    size_t size = (size_t)half * half;
    for (int i = 0; i < half; i++) {
        const double *m = products + (size_t)i * half;
        double *above = out.at + i * out.stride, *below = out.at + (i + half) * out.stride;
#pragma omp simd
        for (int j = 0; j < half; j++) {
            double m1 = m[j], m2 = m[size + j], m3 = m[2 * size + j], m4 = m[3 * size + j];
            double m5 = m[4 * size + j], m6 = m[5 * size + j], m7 = m[6 * size + j];
            above[j] = m1 + m4 - m5 + m7;
            above[half + j] = m3 + m5;
            below[j] = m2 + m4;
            below[half + j] = m1 - m2 + m3 + m6;
        }
    }
}

static void multiply(part out, part a, part b, int side) {
    if (side <= LEAF) {
        multiply_leaf(out, a, b, side);
        return;
    }
    int half = side / 2;
    size_t size = (size_t)half * half;
    double *products = program_allocated(7 * size, sizeof *products);
    for (int p = 0; p < 7; p++) {
#pragma omp task firstprivate(p)
        {
            double *sums = program_allocated(2 * size, sizeof *sums);
            part x = factor_of(a, &left_factors[p], half, sums);
            part y = factor_of(b, &right_factors[p], half, sums + size);
            multiply((part){products + p * size, half}, x, y, half);
            free(sums);
        }
    }
#pragma omp taskwait
    combine(out, products, half);
    free(products);
}

/* Random elements, so many of either sign and so large that products are as large again. */
static void make_matrix(double *matrix, int side, uint64_t which) {
    double scale = sqrt(12.0 / side);
#pragma omp parallel for schedule(static)
    for (int i = 0; i < side; i++)
        for (int j = 0; j < side; j++) {
            size_t at = (size_t)i * side + j;
            matrix[at] = scale * (program_random(2 * at + which) - 0.5);
        }
}

/* Computes out = matrix * vector. */
static void apply(double *out, const double *matrix, const double *vector, int side) {
#pragma omp parallel for schedule(static)
    for (int i = 0; i < side; i++) {
        double sum = 0.0;
        for (int j = 0; j < side; j++) sum += matrix[(size_t)i * side + j] * vector[j];
        out[i] = sum;
    }
}

/* Returns how far product * vector is from left * (right * vector) at most, of the greatest element. */
static double freivalds(const double *product, const double *left, const double *right, int side) {
    double *space = program_allocated(4 * (size_t)side, sizeof *space), error = 0.0;
    double *vector = space, *once = space + side, *twice = once + side, *straight = twice + side;
    for (int v = 0; v < VECTORS; v++) {
        double off = 0.0, greatest = 0.0;
        for (int i = 0; i < side; i++) vector[i] = program_random(~((uint64_t)v * side + i)) - 0.5;
        apply(once, right, vector, side);
        apply(twice, left, once, side);
        apply(straight, product, vector, side);
        for (int i = 0; i < side; i++) {
            greatest = fmax(greatest, fabs(twice[i]));
            if (!(fabs(straight[i] - twice[i]) <= off)) off = fabs(straight[i] - twice[i]);
        }
        if (!(off / greatest <= error)) error = off / greatest;
    }
    free(space);
    return error;
}

int main(int argc, char **argv) {
    program_options o = program_parse(argc, argv);
    const strassen_class *c = classes;
    while (c->name != o.class_) c++;
    int rounds = o.iterations ? o.iterations : c->rounds, side = c->side;

    size_t elements = (size_t)side * side;
    double *left = program_allocated(elements, sizeof *left), *right = program_allocated(elements, sizeof *right);
    double *product = program_allocated(elements, sizeof *product);
    make_matrix(left, side, 0);
    make_matrix(right, side, 1);
    printf("Strassen class %c: %d x %d, %d multiplications\n", c->name, side, side, rounds);

    double seconds = 0.0, error = 0.0;
    for (int r = 0; r < rounds; r++) {
        double start = program_seconds();
        part out = {product, side}, a = {left, side}, b = {right, side};
#pragma omp parallel
#pragma omp single
        multiply(out, a, b, side);
        seconds += program_seconds() - start;
        double off = freivalds(product, left, right, side);
        if (!(off <= error)) error = off;
        double *old = right;
        right = product;
        product = old;
    }

    printf("Off from the vectors' products by at most %.3e\n", error);
    uint64_t sum = program_checksum_rows(right, side, (size_t)side * sizeof *right);
    free(product);
    free(right);
    free(left);
    /* Each multiplication is verified, whatever their number. */
    return program_verdict(sum, seconds, 1, error <= TOLERANCE, error, 0.0, rounds, c->rounds);
}
