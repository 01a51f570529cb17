/* Multigrid: Poisson's equation in a cube, solved by V-cycles over grids each of which is half as fine as the one before.
 *
 * Memory layout, on the heap: each level has three grids, `solution`, `right_side` and `residual`, one after another; the
 * finest level has seven eighths of all memory. A cycle goes over all grids of a level a few times, then over those of the
 * next coarser one, and back. Sweeps are red and black: a region writes every second point of `solution` and reads the
 * others. Planes and rows are divided among the threads; a thread reads a plane beyond its own at either side.
 *
 * Verified: the right side is made of waves that are eigenvectors of the discrete equation, so that its exact solution is
 * known at each point. Each cycle must reduce the residual at least to a quarter, until rounding ends that, and the error
 * must be as small as so many cycles make it. --iterations N does N cycles.
 */
#include "program.h"

#include <math.h>

#define MOST_LEVELS 10
#define MOST_SIDE 384
#define SWEEPS_DOWN 2
#define SWEEPS_UP 2
#define SWEEPS_COARSEST 30
#define WAVES 5
#define PER_CYCLE 0.25
#define ROUNDING 1e-10

typedef struct {
    char name;
    int side, cycles;
} multigrid_class;

static const multigrid_class classes[] = {{'S', 48, 3}, {'W', 96, 4}, {'A', 192, 4}, {'B', 256, 6}, {'C', 384, 6}};

/* Half periods of the waves of the solution along each axis. */
static const int waves[WAVES][3] = {{1, 1, 1}, {2, 3, 1}, {5, 4, 7}, {11, 2, 3}, {17, 13, 19}};

/* A grid of `side` intervals along each axis; the points at its faces are zero and stay so. */
typedef struct {
    int side;
    double *solution, *right_side, *residual;
} level;

static level levels[MOST_LEVELS];
static int coarsest;
static double sines[WAVES][3][MOST_SIDE + 1];

static inline size_t points(int side) {
    return (size_t)(side + 1) * (side + 1) * (side + 1);
}

static inline size_t row_at(int side, int plane, int row) {
    return ((size_t)plane * (side + 1) + row) * (side + 1);
}

static void make_levels(int side) {
    for (int l = 0; l < MOST_LEVELS; l++, side /= 2) {
        size_t all = points(side);
        double *block = program_allocated(3 * all, sizeof *block);
        levels[l] = (level){side, block, block + all, block + 2 * all};
#pragma omp parallel for schedule(static)
        for (int p = 0; p <= side; p++)
            for (int grid = 0; grid < 3; grid++)
                memset(block + grid * all + row_at(side, p, 0), 0, (size_t)(side + 1) * (side + 1) * sizeof *block);
        coarsest = l;
        if (side % 2 || side == 2) break;
    }
}

/* Returns a wave's factor in the discrete equation: six times a point less its six neighbours. */
static double eigenvalue(int w, int side) {
    double sum = 6.0;
    for (int axis = 0; axis < 3; axis++) sum -= 2.0 * cos(M_PI * waves[w][axis] / side);
    return sum;
}

/* Returns the exact solution at a point, or the right side (`factors`: what each wave is multiplied by). */
static inline double at_point(int p, int r, int c, const double *factors) {
    double sum = 0.0;
    for (int w = 0; w < WAVES; w++) sum += factors[w] * sines[w][0][p] * sines[w][1][r] * sines[w][2][c];
    return sum;
}

static void make_right_side(void) {
    int side = levels[0].side;
    double factors[WAVES];
    for (int w = 0; w < WAVES; w++) {
        factors[w] = eigenvalue(w, side);
        for (int axis = 0; axis < 3; axis++)
            for (int k = 0; k <= side; k++) sines[w][axis][k] = sin(M_PI * waves[w][axis] * k / side);
    }
#pragma omp parallel for schedule(static)
    for (int p = 1; p < side; p++)
        for (int r = 1; r < side; r++)
            for (int c = 1; c < side; c++) levels[0].right_side[row_at(side, p, r) + c] = at_point(p, r, c, factors);
}

/* Solves each point of one colour for its neighbours, then each of the other. */
static void sweep(const level *on) {
    int side = on->side;
    size_t row = (size_t)side + 1, plane = row * row;
    for (int colour = 0; colour < 2; colour++)
#pragma omp parallel for schedule(static)
        for (int p = 1; p < side; p++)
            for (int r = 1; r < side; r++) {
                double *u = on->solution + row_at(side, p, r);
                const double *f = on->right_side + row_at(side, p, r);
                for (int c = 1 + ((p + r + colour) & 1); c < side; c += 2)
                    u[c] = (f[c] + u[c - 1] + u[c + 1] + *(u + c - row) + u[c + row] + *(u + c - plane) + u[c + plane]) / 6.0;
            }
}

static void find_residual(const level *on) {
    int side = on->side;
    size_t row = (size_t)side + 1, plane = row * row;
#pragma omp parallel for schedule(static)
    for (int p = 1; p < side; p++)
        for (int r = 1; r < side; r++) {
            const double *u = on->solution + row_at(side, p, r), *f = on->right_side + row_at(side, p, r);
            double *out = on->residual + row_at(side, p, r);
            const double *above = u - row, *below = u + row, *before = u - plane, *behind = u + plane;
#pragma omp simd
            for (int c = 1; c < side; c++)
                out[c] = f[c] - 6.0 * u[c] + (u[c - 1] + u[c + 1] + above[c] + below[c] + before[c] + behind[c]);
        }
}

/* The residual becomes the right side of the coarser level: means over 27 points, times 4 as intervals are twice as long. */
static void restrict_residual(const level *fine, const level *coarse) {
    static const double weights[3] = {0.25, 0.5, 0.25};
    int side = coarse->side;
#pragma omp parallel for schedule(static)
    for (int p = 1; p < side; p++)
        for (int r = 1; r < side; r++) {
            double sums[MOST_SIDE + 1] = {0.0};
            for (int k = 0; k < 9; k++) {
                const double *from = fine->residual + row_at(fine->side, 2 * p + k / 3 - 1, 2 * r + k % 3 - 1);
                double weight = weights[k / 3] * weights[k % 3];
                for (int c = 1; c < fine->side; c++) sums[c] += weight * from[c];
            }
            size_t at = row_at(side, p, r);
            for (int c = 1; c < side; c++) {
                coarse->right_side[at + c] = sums[2 * c - 1] + 2.0 * sums[2 * c] + sums[2 * c + 1];
                coarse->solution[at + c] = 0.0;
            }
        }
}

/* The coarser level's solution, interpolated, corrects the finer one's. */
static void correct(const level *fine, const level *coarse) {
    int side = fine->side;
#pragma omp parallel for schedule(static)
    for (int p = 1; p < side; p++)
        for (int r = 1; r < side; r++) {
            const double *near[4];
            for (int k = 0; k < 4; k++)
                near[k] = coarse->solution + row_at(coarse->side, (p + (k >> 1)) / 2, (r + (k & 1)) / 2);
            double sums[MOST_SIDE / 2 + 1], *u = fine->solution + row_at(side, p, r);
            for (int c = 0; c <= coarse->side; c++) sums[c] = 0.25 * (near[0][c] + near[1][c] + near[2][c] + near[3][c]);
            for (int c = 1; c < side; c++) u[c] += 0.5 * (sums[c / 2] + sums[(c + 1) / 2]);
        }
}

static void cycle(void) {
    for (int l = 0; l < coarsest; l++) {
        for (int s = 0; s < SWEEPS_DOWN; s++) sweep(&levels[l]);
        find_residual(&levels[l]);
        restrict_residual(&levels[l], &levels[l + 1]);
    }
    for (int s = 0; s < SWEEPS_COARSEST; s++) sweep(&levels[coarsest]);
    for (int l = coarsest - 1; l >= 0; l--) {
        correct(&levels[l], &levels[l + 1]);
        for (int s = 0; s < SWEEPS_UP; s++) sweep(&levels[l]);
    }
}

/* Returns the residual's length. A plane's sum is one thread's, and the planes are added in order. */
static double residual_length(void) {
    const level *on = &levels[0];
    double sums[MOST_SIDE + 1], sum = 0.0;
    find_residual(on);
#pragma omp parallel for schedule(static)
    for (int p = 1; p < on->side; p++) {
        sums[p] = 0.0;
        for (int r = 1; r < on->side; r++)
            for (int c = 1; c < on->side; c++) {
                double off = on->residual[row_at(on->side, p, r) + c];
                sums[p] += off * off;
            }
    }
    for (int p = 1; p < on->side; p++) sum += sums[p];
    return sqrt(sum);
}

static double greatest_error(void) {
    static const double ones[WAVES] = {1.0, 1.0, 1.0, 1.0, 1.0};
    int side = levels[0].side;
    double greatest = 0.0;
#pragma omp parallel for schedule(static) reduction(max : greatest)
    for (int p = 0; p <= side; p++)
        for (int r = 0; r <= side; r++)
            for (int c = 0; c <= side; c++) {
                double off = fabs(levels[0].solution[row_at(side, p, r) + c] - at_point(p, r, c, ones));
                if (!(off <= greatest)) greatest = isnan(off) ? INFINITY : off;
            }
    return greatest;
}

int main(int argc, char **argv) {
    program_options o = program_parse(argc, argv);
    const multigrid_class *c = classes;
    while (c->name != o.class_) c++;
    int cycles = o.iterations ? o.iterations : c->cycles;

    make_levels(c->side);
    make_right_side();
    printf("Multigrid class %c: %d intervals along each axis, %d levels, %d cycles\n", c->name, c->side, coarsest + 1, cycles);

    double first = residual_length(), before = first;
    int reduced = 1;
    double start = program_seconds();
    for (int k = 0; k < cycles; k++) {
        cycle();
        double now = residual_length();
        reduced &= now <= PER_CYCLE * before || now <= ROUNDING * first;
        before = now;
    }
    double seconds = program_seconds() - start;

    double error = greatest_error(), allowed = WAVES * pow(PER_CYCLE, cycles) + ROUNDING;
    printf("Residual: %.3e of the first, error at most %.3e\n", before / first, error);
    uint64_t sum = program_checksum_rows(levels[0].solution, c->side + 1, row_at(c->side, 1, 0) * sizeof *levels[0].solution);
    for (int l = 0; l <= coarsest; l++) free(levels[l].solution);
    if (!reduced) fprintf(stderr, "multigrid: a cycle did not reduce the residual to %g\n", PER_CYCLE);
    /* What so many cycles reach is known for any number of them. */
    return program_verdict(sum, seconds, 1, reduced && error <= allowed, error, allowed, cycles, c->cycles);
}
