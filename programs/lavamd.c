/* LavaMD: forces between charged particles in a box, each particle against those of its own cell and of the 26 around it,
 * in the manner of Rodinia's workload of that name (there a cell is called a box too).
 *
 * Memory layout, all on the heap, in the order of boxes and in a box of its 100 particles: `boxes` with their lists of
 * neighbours, `positions` (a position and half its squared length) and `charges` are read only; `forces` (a potential and
 * a force) is all that the region writes, each worker its own part. A worker also reads the boxes in front of and behind
 * its own, a plane of them each way.
 *
 * Verified: as each pair pushes back as hard as it is pushed, the forces times the charges add up to nothing, to 1e-12 of
 * what they are made of; and for some particles potential and force are those that follow from all particles near them,
 * found by their positions and not by the lists, to 1e-9. --iterations N computes all forces N times.
 */
#include "program.h"

#include <math.h>

#define PARTICLES 100 /* in a box */
#define NEIGHBOURS 26
#define ALPHA 1.2
#define SAMPLES 48
#define BALANCE_TOLERANCE 1e-12
#define TOLERANCE 1e-9

typedef struct {
    char name;
    int side; /* boxes */
} lavamd_class;

static const lavamd_class classes[] = {{'S', 3}, {'W', 6}, {'A', 12}, {'B', 22}, {'C', 36}};

typedef struct {
    double v, x, y, z;
} vector;

typedef struct {
    int number;
    long first; /* particle */
} neighbour;

typedef struct {
    int x, y, z, number;
    long first; /* particle */
    int neighbours;
    neighbour neighbour[NEIGHBOURS];
} box;

static box *boxes;
static vector *positions, *forces;
static double *charges;
static int side;

static void *allocated(size_t bytes) {
    void *block = malloc(bytes);
    if (!block) {
        fprintf(stderr, "lavamd: no memory for %zu bytes\n", bytes);
        exit(1);
    }
    return block;
}

/* Returns a random number in [0, 1). */
static double drawn(long which, int what) {
    uint64_t x = ((uint64_t)which * 4 + (uint64_t)what + 1) * 0x9e3779b97f4a7c15ULL;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return (double)((x ^ (x >> 31)) >> 11) * 0x1p-53;
}

static int box_number(int x, int y, int z) {
    return (z * side + y) * side + x;
}

static void list_neighbours(box *b) {
    b->neighbours = 0;
    for (int dz = -1; dz <= 1; dz++)
        for (int dy = -1; dy <= 1; dy++)
            for (int dx = -1; dx <= 1; dx++) {
                int x = b->x + dx, y = b->y + dy, z = b->z + dz;
                if ((!dx && !dy && !dz) || x < 0 || y < 0 || z < 0 || x >= side || y >= side || z >= side) continue;
                int number = box_number(x, y, z);
                b->neighbour[b->neighbours++] = (neighbour){number, (long)number * PARTICLES};
            }
}

/* Boxes are of side 1; their particles lie anywhere in them. */
static void make_boxes(void) {
#pragma omp parallel for schedule(static)
    for (int number = 0; number < side * side * side; number++) {
        box *b = &boxes[number];
        b->number = number;
        b->x = number % side, b->y = number / side % side, b->z = number / side / side;
        b->first = (long)number * PARTICLES;
        list_neighbours(b);
        for (long p = b->first; p < b->first + PARTICLES; p++) {
            vector r = {0.0, b->x + drawn(p, 0), b->y + drawn(p, 1), b->z + drawn(p, 2)};
            r.v = 0.5 * (r.x * r.x + r.y * r.y + r.z * r.z);
            positions[p] = r;
            charges[p] = 0.1 + 0.9 * drawn(p, 3);
        }
    }
}

/* Adds to `force` what the particles of a box do to one at `at`. Half the squared distance is taken from the half squared
 * lengths and a product, as Rodinia does. */
static inline void add_box(vector *force, const vector *at, long first) {
    const double a2 = 2.0 * ALPHA * ALPHA;
    for (long p = first; p < first + PARTICLES; p++) {
        const vector *r = &positions[p];
        double half_square = at->v + r->v - (at->x * r->x + at->y * r->y + at->z * r->z);
        double potential = charges[p] * exp(-a2 * half_square), push = 2.0 * potential;
        force->v += potential;
        force->x += push * (at->x - r->x);
        force->y += push * (at->y - r->y);
        force->z += push * (at->z - r->z);
    }
}

static void compute_forces(void) {
#pragma omp parallel for schedule(static)
    for (int number = 0; number < side * side * side; number++) {
        const box *home = &boxes[number];
        for (long p = home->first; p < home->first + PARTICLES; p++) forces[p] = (vector){0.0, 0.0, 0.0, 0.0};
        for (int k = 0; k <= home->neighbours; k++) {
            long first = k == 0 ? home->first : home->neighbour[k - 1].first;
            for (long p = home->first; p < home->first + PARTICLES; p++) add_box(&forces[p], &positions[p], first);
        }
    }
}

/* The sum of all forces, as a share of the sum of their magnitudes. */
static double imbalance(long n) {
    double sum[3] = {0.0, 0.0, 0.0}, all = 0.0;
    for (long p = 0; p < n; p++) {
        const vector *f = &forces[p];
        sum[0] += charges[p] * f->x;
        sum[1] += charges[p] * f->y;
        sum[2] += charges[p] * f->z;
        all += charges[p] * (fabs(f->x) + fabs(f->y) + fabs(f->z));
    }
    return (fabs(sum[0]) + fabs(sum[1]) + fabs(sum[2])) / all;
}

/* Returns the distance of a particle's force from what all particles together do to it, as a share of its potential. */
static double error_of(long which, long n) {
    const vector *at = &positions[which], *f = &forces[which];
    vector sum = {0.0, 0.0, 0.0, 0.0};
    for (long p = 0; p < n; p++) {
        const vector *r = &positions[p];
        double far = fmax(fabs(floor(at->x) - floor(r->x)), fabs(floor(at->y) - floor(r->y)));
        if (fmax(far, fabs(floor(at->z) - floor(r->z))) > 1.0) continue;
        double dx = at->x - r->x, dy = at->y - r->y, dz = at->z - r->z;
        double potential = charges[p] * exp(-ALPHA * ALPHA * (dx * dx + dy * dy + dz * dz));
        sum.v += potential;
        sum.x += 2.0 * potential * dx;
        sum.y += 2.0 * potential * dy;
        sum.z += 2.0 * potential * dz;
    }
    return (fabs(f->v - sum.v) + fabs(f->x - sum.x) + fabs(f->y - sum.y) + fabs(f->z - sum.z)) / sum.v;
}

static double greatest_error(long n) {
    double greatest = 0.0;
#pragma omp parallel for schedule(static) reduction(max : greatest)
    for (int s = 0; s < SAMPLES; s++) {
        double error = error_of((long)((uint64_t)n * (uint64_t)s / SAMPLES + (uint64_t)s), n);
        if (!(error <= greatest)) greatest = isnan(error) ? INFINITY : error;
    }
    return greatest;
}

int main(int argc, char **argv) {
    program_options o = program_parse(argc, argv);
    const lavamd_class *c = classes;
    while (c->name != o.class_) c++;
    int rounds = o.iterations ? o.iterations : 1;

    side = c->side;
    long count = (long)side * side * side, n = count * PARTICLES;
    boxes = allocated((size_t)count * sizeof *boxes);
    positions = allocated((size_t)n * sizeof *positions);
    charges = allocated((size_t)n * sizeof *charges);
    forces = allocated((size_t)n * sizeof *forces);
    make_boxes();
    printf("LavaMD class %c: %ld boxes, %ld particles\n", c->name, count, n);

    double start = program_seconds();
    for (int round = 0; round < rounds; round++) compute_forces();
    double seconds = program_seconds() - start;

    double balance = imbalance(n), error = greatest_error(n);
    printf("Imbalance: %.3e, greatest error: %.3e\n", balance, error);
    uint64_t sum = program_checksum(PROGRAM_CHECKSUM_SEED, forces, (size_t)n * sizeof *forces);
    free(forces);
    free(charges);
    free(positions);
    free(boxes);
    int balanced = balance <= BALANCE_TOLERANCE;
    /* Every round gives the same forces, so that any number of them can be verified. */
    return program_verdict(sum, seconds, 1, balanced && error <= TOLERANCE, balanced ? error : balance, 0.0, rounds, 1);
}
