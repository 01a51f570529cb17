/* FFT: a field of complex numbers in three dimensions is transformed, multiplied by a phase and transformed back. A
 * direction after the other is made the one whose numbers lie side by side, by transposing the field.
 *
 * Memory layout, on the heap: `field` and `turned`. Rows are transformed where they lie, and `turned` is `field` as a
 * matrix of all rows, transposed by tiles of 16 by 16; the two are then exchanged. After three times all directions have
 * been transformed, and the numbers lie as they did at first. A transposition writes rows one after another and reads
 * down columns, a page or more apart.
 *
 * Verified: multiplying the transform by the phases of a shift moves the field cyclically by whole cells, so that every
 * number is known after any number of iterations: they are compared to 1e-12. --iterations N shifts the field N times.
 */
#include "program.h"

#include <complex.h>
#include <math.h>

#define TILE 16
#define TOLERANCE 1e-12

typedef double complex number;

typedef struct {
    char name;
    int sides[3], rounds;
} fft_class;

/* Sides are powers of two: of planes, rows and columns. */
static const fft_class classes[] = {
    {'S', {32, 32, 64}, 2},     {'W', {64, 64, 128}, 2},    {'A', {128, 128, 256}, 2},
    {'B', {256, 256, 256}, 3}, {'C', {512, 512, 256}, 3},
};
/* The cells by which an iteration shifts the field: along planes, rows and columns. */
static const int shifts[3] = {3, 7, 5};

static number *field, *turned;
static size_t cells;
/* The roots of unity of the longest side, the first half of them. */
static number *roots;
static int longest;

static void make_roots(void) {
    roots = program_allocated(longest / 2, sizeof *roots);
    for (int k = 0; k < longest / 2; k++) roots[k] = cexp(-2.0 * M_PI * I * k / longest);
}

/* Multiplies without C's rules for infinities. */
static inline number times(number a, number b) {
    return (creal(a) * creal(b) - cimag(a) * cimag(b)) + I * (creal(a) * cimag(b) + cimag(a) * creal(b));
}

/* Transforms `n` numbers where they lie, radix 2: first those whose place's bits, reversed, are another place are exchanged. */
static void transform(number *x, int n, int back) {
    for (int i = 1, j = 0; i < n; i++) {
        int bit = n >> 1;
        for (; j & bit; bit >>= 1) j ^= bit;
        j ^= bit;
        if (i < j) {
            number kept = x[i];
            x[i] = x[j];
            x[j] = kept;
        }
    }
    for (int half = 1; half < n; half *= 2) {
        int step = longest / (2 * half);
        for (int first = 0; first < n; first += 2 * half)
            for (int k = 0; k < half; k++) {
                number root = back ? conj(roots[k * step]) : roots[k * step];
                number even = x[first + k], odd = times(root, x[first + half + k]);
                x[first + k] = even + odd;
                x[first + half + k] = even - odd;
            }
    }
}

/* Transforms all rows of `length` numbers. */
static void transform_rows(int length, int back) {
    size_t rows = cells / length;
#pragma omp parallel for schedule(static)
    for (size_t r = 0; r < rows; r++) transform(field + r * length, length, back);
}

/* Transposes the field as a matrix of rows of `length` numbers. A thread writes whole rows of the result. */
static void transpose(int length) {
    size_t rows = cells / length;
#pragma omp parallel for schedule(static)
    for (int band = 0; band < length; band += TILE)
        for (size_t first = 0; first < rows; first += TILE)
            for (int c = band; c < band + TILE; c++)
                for (size_t r = first; r < first + TILE; r++) turned[c * rows + r] = field[r * length + c];
    number *old = field;
    field = turned;
    turned = old;
}

/* Transforms all three directions: columns, rows, planes. */
static void transform_all(const int *sides, int back) {
    for (int d = 2; d >= 0; d--) {
        transform_rows(sides[d], back);
        transpose(sides[d]);
    }
}

/* Multiplies by the phases of a shift, and by what transforming to and fro makes too large. */
static void shift(const int *sides) {
#pragma omp parallel for schedule(static) collapse(2)
    for (int p = 0; p < sides[0]; p++)
        for (int r = 0; r < sides[1]; r++) {
            int of_row = shifts[0] * p * (longest / sides[0]) + shifts[1] * r * (longest / sides[1]);
            number *row = field + ((size_t)p * sides[1] + r) * sides[2];
            for (int c = 0; c < sides[2]; c++) {
                int turn = (of_row + shifts[2] * c * (longest / sides[2])) & (longest - 1);
                number phase = turn < longest / 2 ? roots[turn] : -roots[turn - longest / 2];
                row[c] = times(row[c], phase) / (double)cells;
            }
        }
}

/* The number that was first at a place of the field. */
static inline number first_at(size_t place) {
    return (program_random(2 * place) - 0.5) + I * (program_random(2 * place + 1) - 0.5);
}

static void make_field(void) {
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < cells; i++) field[i] = first_at(i), turned[i] = 0.0;
}

/* Returns how far any number is from the one that was `rounds` shifts before it. */
static double greatest_error(const int *sides, int rounds) {
    double greatest = 0.0;
    int by[3];
    for (int d = 0; d < 3; d++) by[d] = (int)((long)shifts[d] * rounds % sides[d]);
#pragma omp parallel for schedule(static) collapse(2) reduction(max : greatest)
    for (int p = 0; p < sides[0]; p++)
        for (int r = 0; r < sides[1]; r++)
            for (int c = 0; c < sides[2]; c++) {
                size_t from_plane = (p - by[0] + sides[0]) % sides[0], from_row = (r - by[1] + sides[1]) % sides[1];
                size_t from = (from_plane * sides[1] + from_row) * sides[2] + (c - by[2] + sides[2]) % sides[2];
                double off = cabs(field[((size_t)p * sides[1] + r) * sides[2] + c] - first_at(from));
                if (!(off <= greatest)) greatest = isnan(off) ? INFINITY : off;
            }
    return greatest;
}

int main(int argc, char **argv) {
    program_options o = program_parse(argc, argv);
    const fft_class *c = classes;
    while (c->name != o.class_) c++;
    int rounds = o.iterations ? o.iterations : c->rounds;
    const int *sides = c->sides;

    cells = (size_t)sides[0] * sides[1] * sides[2];
    for (int d = 0; d < 3; d++) longest = sides[d] > longest ? sides[d] : longest;
    field = program_allocated(cells, sizeof *field), turned = program_allocated(cells, sizeof *turned);
    make_roots();
    make_field();
    printf("FFT class %c: %d x %d x %d numbers, %d shifts\n", c->name, sides[0], sides[1], sides[2], rounds);

    double start = program_seconds();
    for (int r = 0; r < rounds; r++) {
        transform_all(sides, 0);
        shift(sides);
        transform_all(sides, 1);
    }
    double seconds = program_seconds() - start;

    double error = greatest_error(sides, rounds);
    printf("Greatest error: %.3e\n", error);
    uint64_t sum = program_checksum_rows(field, cells / sides[2], (size_t)sides[2] * sizeof *field);
    free(roots);
    free(turned);
    free(field);
    /* The shifted field is known for any number of shifts. */
    return program_verdict(sum, seconds, 1, error <= TOLERANCE, error, 0.0, rounds, c->rounds);
}
