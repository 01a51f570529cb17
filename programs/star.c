/* Star: diffusion in three dimensions by a stencil of high order, a star of radius 4: 25 points, of which 16 lie in other
 * rows and 8 of these in other planes.
 *
 * Memory layout, on the heap: `now` and `next`, two grids that are exchanged each step. A row is stored with four cells
 * more at either end, which repeat its other end, as the grid is periodic; rows and planes beyond the edge are found by
 * their number. Planes are divided among the threads, and a thread reads four planes beyond its own at either side.
 *
 * Verified: a plane wave over the grid is an eigenvector of a step, and its factor is known. The weights of some waves,
 * among them the constant one (what is diffused is kept), are followed as numbers and compared at the end to 1e-12 of the
 * greatest. --iterations N does N steps.
 */
#include "program.h"

#include <math.h>

#define RADIUS 4
#define WAVES 6
#define PER_STEP 0.05
#define TOLERANCE 1e-12

typedef struct {
    char name;
    int side, steps;
} star_class;

static const star_class classes[] = {{'S', 40, 8}, {'W', 104, 16}, {'A', 208, 24}, {'B', 320, 24}, {'C', 448, 24}};

/* The second derivative to the eighth order: the factor of a cell itself, and of those at distance 1 to 4. */
static const double factors[RADIUS + 1] = {-205.0 / 72, 8.0 / 5, -1.0 / 5, 8.0 / 315, -1.0 / 560};

/* Periods of the waves that are followed, along each axis. */
static const int waves[WAVES][3] = {{0, 0, 0}, {1, 0, 0}, {0, 1, 0}, {0, 0, 1}, {1, 2, 0}, {2, 1, 3}};

static double *now, *next;
static int side;
static size_t stride;

/* Returns the first cell of a row; planes and rows may be up to a side beyond the edge. */
static inline size_t row_at(int plane, int row) {
    size_t p = (size_t)((plane + side) % side), r = (size_t)((row + side) % side);
    return (p * side + r) * stride + RADIUS;
}

/* Repeats the ends of a row at its other ends. */
static inline void wrap(double *row) {
    for (int k = 0; k < RADIUS; k++) row[k - RADIUS] = row[side + k - RADIUS], row[side + k] = row[k];
}

static double angle(int w, int plane, int row, int column) {
    return 2.0 * M_PI * (waves[w][0] * plane + waves[w][1] * row + waves[w][2] * column) / side;
}

/* The waves, and noise, which the diffusion smooths away. */
static void make_grid(void) {
#pragma omp parallel for schedule(static)
    for (int p = 0; p < side; p++)
        for (int r = 0; r < side; r++) {
            double *row = now + row_at(p, r), *other = next + row_at(p, r);
            for (int c = 0; c < side; c++) {
                row[c] = program_random(((size_t)p * side + r) * side + c), other[c] = 0.0;
                for (int w = 0; w < 3; w++) row[c] += cos(angle(w, p, r, c));
            }
            wrap(row), wrap(other);
        }
}

static void step(void) {
#pragma omp parallel for schedule(static)
    for (int p = 0; p < side; p++)
        for (int r = 0; r < side; r++) {
            const double *here = now + row_at(p, r);
            double *out = next + row_at(p, r);
            const double *up[RADIUS + 1], *down[RADIUS + 1], *before[RADIUS + 1], *behind[RADIUS + 1];
            for (int k = 1; k <= RADIUS; k++) {
                up[k] = now + row_at(p, r - k), down[k] = now + row_at(p, r + k);
                before[k] = now + row_at(p - k, r), behind[k] = now + row_at(p + k, r);
            }
#pragma omp simd
            for (int c = 0; c < side; c++) {
                double sum = 3.0 * factors[0] * here[c];
#pragma GCC unroll 4
                for (int k = 1; k <= RADIUS; k++)
                    sum += factors[k] * (here[c - k] + here[c + k] + up[k][c] + down[k][c] + before[k][c] + behind[k][c]);
                out[c] = here[c] + PER_STEP * sum;
            }
            wrap(out);
        }
    double *old = now;
    now = next;
    next = old;
}

/* Computes the weights of the waves: means over all cells. A plane's sums are one thread's, and the planes are added in
 * order. */
static void weigh(double *weights) {
    double *planes = program_allocated((size_t)side * WAVES, sizeof *planes);
    double *cosines = program_allocated(side, sizeof *cosines);
    for (int k = 0; k < side; k++) cosines[k] = cos(2.0 * M_PI * k / side);
#pragma omp parallel for schedule(static)
    for (int p = 0; p < side; p++)
        for (int w = 0; w < WAVES; w++) {
            double sum = 0.0;
            for (int r = 0; r < side; r++) {
                const double *row = now + row_at(p, r);
                int turn = waves[w][0] * p + waves[w][1] * r;
                for (int c = 0; c < side; c++) sum += row[c] * cosines[(turn + waves[w][2] * c) % side];
            }
            planes[p * WAVES + w] = sum;
        }
    for (int w = 0; w < WAVES; w++) {
        weights[w] = 0.0;
        for (int p = 0; p < side; p++) weights[w] += planes[p * WAVES + w] / side / side / side;
    }
    free(cosines);
    free(planes);
}

/* Returns the factor of a wave in a step. */
static double kept(int w) {
    double sum = 0.0;
    for (int axis = 0; axis < 3; axis++) {
        sum += factors[0];
        for (int k = 1; k <= RADIUS; k++) sum += 2.0 * factors[k] * cos(2.0 * M_PI * waves[w][axis] * k / side);
    }
    return 1.0 + PER_STEP * sum;
}

int main(int argc, char **argv) {
    program_options o = program_parse(argc, argv);
    const star_class *c = classes;
    while (c->name != o.class_) c++;
    int steps = o.iterations ? o.iterations : c->steps;

    side = c->side, stride = (size_t)side + 2 * RADIUS;
    size_t rows = (size_t)side * side;
    now = program_allocated(rows * stride, sizeof *now), next = program_allocated(rows * stride, sizeof *next);
    make_grid();
    double before[WAVES], after[WAVES];
    weigh(before);
    printf("Star class %c: %d x %d x %d cells, %d steps\n", c->name, side, side, side, steps);

    double start = program_seconds();
    for (int s = 0; s < steps; s++) step();
    double seconds = program_seconds() - start;

    weigh(after);
    int worst = 0;
    double error = -1.0, expected = 0.0;
    for (int w = 0; w < WAVES; w++) {
        double foretold = before[w] * pow(kept(w), steps), off = fabs(after[w] - foretold);
        if (!(off <= error)) error = off, worst = w, expected = foretold;
    }
    printf("The waves are off by at most %.3e\n", error);
    uint64_t sum = program_checksum_rows(now, rows, stride * sizeof *now);
    free(next);
    free(now);
    /* The waves are foretold for any number of steps. */
    return program_verdict(sum, seconds, 1, error <= TOLERANCE, after[worst], expected, steps, c->steps);
}
