/* Lookups: random read-only look-ups of all threads in one table, in the manner of Monte Carlo codes that follow neutrons
 * and need cross sections at each collision.
 *
 * Memory layout, all on the heap: `energies`, sorted, and `sections`, a row of seven values for each energy; both are
 * written once and then only read by all threads, at random. A look-up finds its energy by a binary search, whose first
 * steps all look-ups share, and interpolates between two rows. `sums` has a row for each block of look-ups.
 *
 * Verified: the sections are straight lines over the energy, so that the result of each look-up is known without the
 * table, to 1e-12, and the energy lies between the two that were found. No errors are allowed. --iterations N does N
 * batches of look-ups.
 */
#include "program.h"

#include <math.h>

#define SECTIONS 7
#define BLOCK 4096        /* look-ups that one thread does in order */
#define BLOCKS_IN_BATCH 8 /* 32,768 look-ups are a batch */
#define TOLERANCE 1e-12

typedef struct {
    char name;
    int log_points, batches;
} lookups_class;

static const lookups_class classes[] = {{'S', 15, 1}, {'W', 18, 8}, {'A', 21, 24}, {'B', 22, 48}, {'C', 24, 128}};

typedef struct {
    double of[SECTIONS];
} row;

static double *energies;
static row *sections;
static size_t points;

/* The value of a section at an energy: a line of its own for each section. */
static inline double known(int section, double energy) {
    return 1.0 + section + (0.5 - 0.25 * section) * energy;
}

/* Energy i lies somewhere in the i-th of equal parts from 0 to 1; the first and the last are the ends. */
static void make_table(void) {
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < points; i++) {
        double energy = i == points - 1 ? 1.0 : i == 0 ? 0.0 : ((double)i + program_random(i)) / (double)points;
        energies[i] = energy;
        for (int s = 0; s < SECTIONS; s++) sections[i].of[s] = known(s, energy);
    }
}

/* Returns the last point whose energy is at most `energy`, the last but one of all at most. */
static size_t find(double energy) {
    size_t low = 0, high = points - 1;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (energies[middle] <= energy)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Does the look-ups of a block, adds them up and returns the number of wrong ones. */
static long look_up(size_t block, row *sum) {
    long wrong = 0;
    memset(sum, 0, sizeof *sum);
    for (size_t k = 0; k < BLOCK; k++) {
        double energy = program_random(~(block * BLOCK + k));
        size_t at = find(energy);
        double low = energies[at], high = energies[at + 1], part = (energy - low) / (high - low);
        int right = low <= energy && energy < high;
        for (int s = 0; s < SECTIONS; s++) {
            double below = sections[at].of[s], above = sections[at + 1].of[s];
            double found = below + part * (above - below);
            right &= fabs(found - known(s, energy)) <= TOLERANCE * SECTIONS;
            sum->of[s] += found;
        }
        wrong += !right;
    }
    return wrong;
}

int main(int argc, char **argv) {
    program_options o = program_parse(argc, argv);
    const lookups_class *c = classes;
    while (c->name != o.class_) c++;
    int batches = o.iterations ? o.iterations : c->batches;

    points = (size_t)1 << c->log_points;
    size_t blocks = (size_t)batches * BLOCKS_IN_BATCH;
    energies = program_allocated(points, sizeof *energies), sections = program_allocated(points, sizeof *sections);
    row *sums = program_allocated(blocks, sizeof *sums);
    make_table();
    printf("Lookups class %c: %zu points, %d batches of %d look-ups\n", c->name, points, batches, BLOCKS_IN_BATCH * BLOCK);

    double start = program_seconds();
    long wrong = 0;
    for (int b = 0; b < batches; b++) {
        size_t first = (size_t)b * BLOCKS_IN_BATCH;
#pragma omp parallel for schedule(static) reduction(+ : wrong)
        for (size_t k = 0; k < BLOCKS_IN_BATCH; k++) wrong += look_up(first + k, &sums[first + k]);
    }
    double seconds = program_seconds() - start;

    printf("Wrong look-ups: %ld\n", wrong);
    uint64_t sum = program_checksum(PROGRAM_CHECKSUM_SEED, sums, blocks * sizeof *sums);
    free(sums);
    free(sections);
    free(energies);
    /* Each look-up is verified, whatever their number. */
    return program_verdict(sum, seconds, 1, wrong == 0, (double)wrong, 0.0, batches, c->batches);
}
