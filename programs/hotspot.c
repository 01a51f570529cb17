/* Hotspot: the temperature of a chip from the power its parts draw, stepped in time, in the manner of Rodinia's workload
 * of that name. Every step computes a new grid from the old one, and the two are exchanged.
 *
 * Memory layout, all on the heap: `temperature` and `result`, two grids of which each is written by every second region
 * and read by the ones between, and `power`, read only. A region goes over blocks of 16 by 16 cells, blocks of a row of
 * blocks side by side, so a worker writes bands of rows and reads one row beyond each. Rodinia's cells are of float; here
 * they are of double, so that what is conserved can be seen to be.
 *
 * Verified: no heat leaves by the edges, so that a cosine wave over the grid is an eigenvector of a step, and what a wave
 * weighs in the temperature follows from what it weighed before and in the power, whatever the other waves do. Some
 * waves, among them the constant one (the total heat), are followed as numbers and compared at the end to 1e-12 of the
 * greatest. --iterations N does N steps.
 */
#include "program.h"

#include <math.h>

#define BLOCK 16
#define WAVES 8
#define TOLERANCE 1e-12

typedef struct {
    char name;
    int side, steps;
} hotspot_class;

static const hotspot_class classes[] = {
    {'S', 64, 100}, {'W', 512, 100}, {'A', 2048, 60}, {'B', 4096, 60}, {'C', 8192, 60},
};

/* The chip: its measures in metres, what its material holds and conducts, and how hot it may get. */
#define THICKNESS 0.0005
#define CHIP_SIDE 0.016
#define SPECIFIC_HEAT 1.75e6
#define CONDUCTIVITY 100.0
#define CAPACITY_FACTOR 0.5
#define MOST_POWER_DENSITY 3.0e6
#define PRECISION 0.001
#define AMBIENT 80.0

/* Half periods of the waves that are followed, down and across. */
static const int waves[WAVES][2] = {{0, 0}, {0, 1}, {1, 0}, {1, 1}, {2, 5}, {7, 3}, {13, 0}, {17, 19}};

static double *temperature, *result, *power;
static int side;
/* The factors of what a step adds: of the power, of the differences to neighbours in a column and in a row, and to the surroundings. */
static double per_power, per_column, per_row, per_ambient;

static double *allocated(size_t cells) {
    double *block = malloc(cells * sizeof *block);
    if (!block) {
        fprintf(stderr, "hotspot: no memory for %zu cells\n", cells);
        exit(1);
    }
    return block;
}

static void make_coefficients(void) {
    double cell = CHIP_SIDE / side;
    double capacity = CAPACITY_FACTOR * SPECIFIC_HEAT * THICKNESS * cell * cell;
    double resistance = cell / (2.0 * CONDUCTIVITY * THICKNESS * cell);
    double resistance_up = THICKNESS / (CONDUCTIVITY * cell * cell);
    double step = PRECISION / (MOST_POWER_DENSITY / (CAPACITY_FACTOR * THICKNESS * SPECIFIC_HEAT));
    /* With finer cells the neighbours' part grows; beyond a quarter the steps would swing. */
    if (step / capacity / resistance > 0.2) step = 0.2 * capacity * resistance;
    per_power = step / capacity;
    per_column = per_row = per_power / resistance;
    per_ambient = per_power / resistance_up;
}

/* Warm patches on a slope, and a few units that draw most of the power. */
static void make_grids(void) {
#pragma omp parallel for schedule(static)
    for (int r = 0; r < side; r++)
        for (int c = 0; c < side; c++) {
            double y = (r + 0.5) / side, x = (c + 0.5) / side;
            size_t at = (size_t)r * side + c;
            uint32_t noise = (uint32_t)(at * 2654435761u);
            temperature[at] = 320.0 + 10.0 * x + 5.0 * sin(9.0 * y) + (noise >> 8) * 0x1p-24;
            int unit = (int)(y * 8) * 8 + (int)(x * 8);
            power[at] = 1e-3 * (unit % 5 == 0 ? 8.0 : 0.5 + y) * (64.0 / side) * (64.0 / side);
            result[at] = 0.0;
        }
}

/* One cell at the edge of the grid: a neighbour that is not there takes no heat. */
static double edge_cell(const double *from, int r, int c) {
    size_t at = (size_t)r * side + c;
    double t = from[at], across = 0.0, down = 0.0;
    if (r > 0) down += from[at - side] - t;
    if (r < side - 1) down += from[at + side] - t;
    if (c > 0) across += from[at - 1] - t;
    if (c < side - 1) across += from[at + 1] - t;
    return t + per_power * power[at] + per_column * down + per_row * across + per_ambient * (AMBIENT - t);
}

/* A step: `to` from `from`, block by block. */
static void step(const double *from, double *to) {
    int blocks = side / BLOCK;
#pragma omp parallel for schedule(static)
    for (int b = 0; b < blocks * blocks; b++) {
        int first_row = b / blocks * BLOCK, first_column = b % blocks * BLOCK;
        for (int r = first_row; r < first_row + BLOCK; r++) {
            int begin = first_column, end = first_column + BLOCK;
            if (r == 0 || r == side - 1) {
                for (int c = begin; c < end; c++) to[(size_t)r * side + c] = edge_cell(from, r, c);
                continue;
            }
            if (begin == 0) to[(size_t)r * side] = edge_cell(from, r, begin++);
            if (end == side) end--, to[(size_t)r * side + end] = edge_cell(from, r, end);
            const double *here = from + (size_t)r * side, *above = here - side, *below = here + side;
            const double *drawn = power + (size_t)r * side;
            double *out = to + (size_t)r * side;
#pragma omp simd
            for (int c = begin; c < end; c++)
                out[c] = here[c] + per_power * drawn[c] + per_column * (above[c] + below[c] - 2.0 * here[c]) +
                         per_row * (here[c - 1] + here[c + 1] - 2.0 * here[c]) + per_ambient * (AMBIENT - here[c]);
        }
    }
}

/* Computes the weights of the waves in a grid: means over all cells. A row's sums are one thread's, and the rows are added in order. */
static void weigh(const double *grid, double *weights) {
    double *cosines = allocated((size_t)WAVES * side), *rows = allocated((size_t)WAVES * side);
    for (int w = 0; w < WAVES; w++)
        for (int c = 0; c < side; c++) cosines[(size_t)w * side + c] = cos(M_PI * waves[w][1] * (c + 0.5) / side);
#pragma omp parallel for schedule(static)
    for (int r = 0; r < side; r++)
        for (int w = 0; w < WAVES; w++) {
            double sum = 0.0;
            for (int c = 0; c < side; c++) sum += grid[(size_t)r * side + c] * cosines[(size_t)w * side + c];
            rows[(size_t)w * side + r] = sum / side * cos(M_PI * waves[w][0] * (r + 0.5) / side);
        }
    for (int w = 0; w < WAVES; w++) {
        weights[w] = 0.0;
        for (int r = 0; r < side; r++) weights[w] += rows[(size_t)w * side + r] / side;
    }
    free(rows);
    free(cosines);
}

/* Returns the weight of a wave after `steps` steps: a number, stepped by itself. */
static double foretold(int w, double weight, double weight_in_power, int steps) {
    double down = 2.0 * sin(0.5 * M_PI * waves[w][0] / side), across = 2.0 * sin(0.5 * M_PI * waves[w][1] / side);
    double kept = 1.0 - per_ambient - per_column * down * down - per_row * across * across;
    double added = per_power * weight_in_power + (w == 0 ? per_ambient * AMBIENT : 0.0);
    for (int s = 0; s < steps; s++) weight = kept * weight + added;
    return weight;
}

int main(int argc, char **argv) {
    program_options o = program_parse(argc, argv);
    const hotspot_class *c = classes;
    while (c->name != o.class_) c++;
    int steps = o.iterations ? o.iterations : c->steps;

    side = c->side;
    size_t cells = (size_t)side * side;
    temperature = allocated(cells), result = allocated(cells), power = allocated(cells);
    make_coefficients();
    make_grids();
    double before[WAVES], drawn[WAVES], after[WAVES];
    weigh(temperature, before);
    weigh(power, drawn);
    printf("Hotspot class %c: %d x %d cells, %d steps\n", c->name, side, side, steps);

    double start = program_seconds();
    for (int s = 0; s < steps; s++) {
        step(temperature, result);
        double *old = temperature;
        temperature = result;
        result = old;
    }
    double seconds = program_seconds() - start;

    weigh(temperature, after);
    int worst = 0;
    double error = -1.0;
    for (int w = 0; w < WAVES; w++) {
        double off = fabs(after[w] - foretold(w, before[w], drawn[w], steps));
        if (!(off <= error)) error = off, worst = w;
    }
    double expected = foretold(worst, before[worst], drawn[worst], steps);
    printf("Mean temperature: %.12f, the waves are off by at most %.3e\n", after[0], error);
    uint64_t sum = program_checksum(PROGRAM_CHECKSUM_SEED, temperature, cells * sizeof *temperature);
    free(power);
    free(result);
    free(temperature);
    /* The waves are foretold for any number of steps. */
    return program_verdict(sum, seconds, 1, error <= TOLERANCE * fabs(after[0]), after[worst], expected, steps, c->steps);
}
