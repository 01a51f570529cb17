/* Smooth: an image of several channels is smoothed by a Gaussian in two passes, over rows and then over columns, as image
 * filters that separate do.
 *
 * Memory layout, on the heap: `image` and `between`, each of three planes, one a channel, row by row. The pass over rows
 * reads the one and writes the other in order. The pass over columns goes back, and down strips of columns: it visits one
 * page after another of a whole plane for each strip, and comes back to them for the next one.
 *
 * Verified: the image is mirrored at its edges, so that a cosine wave over it is an eigenvector of each pass. The weights
 * of some waves in each channel, among them the constant one (the brightness), are followed as numbers and compared at the
 * end to 1e-12 of the greatest. --iterations N smooths N times.
 */
#include "program.h"

#include <math.h>

#define CHANNELS 3
#define RADIUS 8
#define SPREAD 2.5 /* standard deviation in pixels */
#define STRIP 64   /* columns that are done together */
#define WAVES 6
#define TOLERANCE 1e-12

typedef struct {
    char name;
    int side, rounds;
} smooth_class;

static const smooth_class classes[] = {{'S', 192, 4}, {'W', 576, 8}, {'A', 1536, 12}, {'B', 3072, 12}, {'C', 6144, 12}};

/* Half periods of the waves that are followed, down and across. */
static const int waves[WAVES][2] = {{0, 0}, {0, 1}, {1, 0}, {2, 3}, {5, 0}, {4, 7}};

static double *image, *between;
static double factors[RADIUS + 1];
static int side;

static inline double *line(double *planes, int channel, int row) {
    return planes + ((size_t)channel * side + row) * side;
}

/* Mirrors a row's or a column's number at the edges. */
static inline int mirrored(int at) {
    return at < 0 ? -1 - at : at >= side ? 2 * side - 1 - at : at;
}

static void make_factors(void) {
    double sum = 0.0;
    for (int k = 0; k <= RADIUS; k++) {
        factors[k] = exp(-0.5 * k * k / (SPREAD * SPREAD));
        sum += k ? 2.0 * factors[k] : factors[k];
    }
    for (int k = 0; k <= RADIUS; k++) factors[k] /= sum;
}

/* Slopes, circles and noise, other ones in each channel. */
static void make_image(void) {
#pragma omp parallel for schedule(static) collapse(2)
    for (int channel = 0; channel < CHANNELS; channel++)
        for (int r = 0; r < side; r++) {
            double *row = line(image, channel, r), *other = line(between, channel, r), y = (r + 0.5) / side;
            for (int c = 0; c < side; c++) {
                double x = (c + 0.5) / side, circle = (x - 0.4) * (x - 0.4) + (y - 0.6) * (y - 0.6);
                double noise = program_random(((size_t)channel * side + r) * side + c);
                row[c] = 0.4 * x + 0.2 * y * (channel + 1) + (circle < 0.04 * (channel + 1)) + 0.3 * noise;
                other[c] = 0.0;
            }
        }
}

/* The first pass: from `image` to `between`. A row is copied and mirrored at its ends first. */
static void smooth_rows(void) {
#pragma omp parallel
    {
        double *copy = program_allocated((size_t)side + 2 * RADIUS, sizeof *copy);
        double *middle = copy + RADIUS;
#pragma omp for schedule(static) collapse(2)
        for (int channel = 0; channel < CHANNELS; channel++)
            for (int r = 0; r < side; r++) {
                double *out = line(between, channel, r);
                memcpy(middle, line(image, channel, r), (size_t)side * sizeof *middle);
                for (int k = 0; k < RADIUS; k++) middle[-1 - k] = middle[k], middle[side + k] = middle[side - 1 - k];
#pragma omp simd
                for (int c = 0; c < side; c++) {
                    double sum = factors[0] * middle[c];
                    for (int k = 1; k <= RADIUS; k++) sum += factors[k] * (middle[c - k] + middle[c + k]);
                    out[c] = sum;
                }
            }
        free(copy);
    }
}

/* The second pass: from `between` to `image`, down strips of columns. */
static void smooth_columns(void) {
    int strips = side / STRIP;
#pragma omp parallel for schedule(static) collapse(2)
    for (int channel = 0; channel < CHANNELS; channel++)
        for (int s = 0; s < strips; s++)
            for (int r = 0; r < side; r++) {
                const double *here = line(between, channel, r) + s * STRIP;
                double sum[STRIP], *out = line(image, channel, r) + s * STRIP;
                for (int c = 0; c < STRIP; c++) sum[c] = factors[0] * here[c];
                for (int k = 1; k <= RADIUS; k++) {
                    const double *above = line(between, channel, mirrored(r - k)) + s * STRIP;
                    const double *below = line(between, channel, mirrored(r + k)) + s * STRIP;
                    for (int c = 0; c < STRIP; c++) sum[c] += factors[k] * (above[c] + below[c]);
                }
                memcpy(out, sum, sizeof sum);
            }
}

/* Computes the weights of the waves in each channel: means over all pixels. A row's sums are one thread's, and the rows are
 * added in order. */
static void weigh(double weights[CHANNELS][WAVES]) {
    double *cosines = program_allocated((size_t)WAVES * side, sizeof *cosines);
    double *rows = program_allocated((size_t)CHANNELS * side * WAVES, sizeof *rows);
    for (int w = 0; w < WAVES; w++)
        for (int c = 0; c < side; c++) cosines[(size_t)w * side + c] = cos(M_PI * waves[w][1] * (c + 0.5) / side);
#pragma omp parallel for schedule(static) collapse(2)
    for (int channel = 0; channel < CHANNELS; channel++)
        for (int r = 0; r < side; r++)
            for (int w = 0; w < WAVES; w++) {
                const double *row = line(image, channel, r);
                double sum = 0.0;
                for (int c = 0; c < side; c++) sum += row[c] * cosines[(size_t)w * side + c];
                rows[((size_t)channel * side + r) * WAVES + w] = sum / side * cos(M_PI * waves[w][0] * (r + 0.5) / side);
            }
    for (int channel = 0; channel < CHANNELS; channel++)
        for (int w = 0; w < WAVES; w++) {
            weights[channel][w] = 0.0;
            for (int r = 0; r < side; r++) weights[channel][w] += rows[((size_t)channel * side + r) * WAVES + w] / side;
        }
    free(rows);
    free(cosines);
}

/* Returns the factor of a wave in a pass along the direction in which it has this number of half periods. */
static double kept(int half_periods) {
    double sum = factors[0];
    for (int k = 1; k <= RADIUS; k++) sum += 2.0 * factors[k] * cos(M_PI * half_periods * k / side);
    return sum;
}

int main(int argc, char **argv) {
    program_options o = program_parse(argc, argv);
    const smooth_class *c = classes;
    while (c->name != o.class_) c++;
    int rounds = o.iterations ? o.iterations : c->rounds;

    side = c->side;
    size_t pixels = (size_t)side * side * CHANNELS;
    image = program_allocated(pixels, sizeof *image), between = program_allocated(pixels, sizeof *between);
    make_factors();
    make_image();
    double before[CHANNELS][WAVES], after[CHANNELS][WAVES];
    weigh(before);
    printf("Smooth class %c: %d x %d pixels, %d channels, %d rounds\n", c->name, side, side, CHANNELS, rounds);

    double start = program_seconds();
    for (int r = 0; r < rounds; r++) smooth_rows(), smooth_columns();
    double seconds = program_seconds() - start;

    weigh(after);
    double error = -1.0, got = 0.0, expected = 0.0;
    for (int channel = 0; channel < CHANNELS; channel++)
        for (int w = 0; w < WAVES; w++) {
            double foretold = before[channel][w] * pow(kept(waves[w][0]) * kept(waves[w][1]), rounds);
            double off = fabs(after[channel][w] - foretold);
            if (!(off <= error)) error = off, got = after[channel][w], expected = foretold;
        }
    printf("The waves are off by at most %.3e\n", error);
    uint64_t sum = program_checksum_rows(image, (size_t)CHANNELS * side, (size_t)side * sizeof *image);
    free(between);
    free(image);
    /* The waves are foretold for any number of rounds. */
    return program_verdict(sum, seconds, 1, error <= TOLERANCE, got, expected, rounds, c->rounds);
}
