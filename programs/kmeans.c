/* Kmeans: points in a space of 34 dimensions are put into clusters by Lloyd's algorithm, in the manner of Rodinia's
 * workload of that name.
 *
 * Memory layout, all on the heap: `features`, one block of float reached through an array of rows, is read only;
 * `membership` is written by the region where a point changes its cluster; the centres `centre` are written by the master
 * between regions and read by all. Each worker adds up its points in `partial_sum[worker][cluster]` and
 * `partial_length[worker]`, small blocks allocated one by one as in Rodinia, so that several workers' lie in one page.
 * The master adds these in order. A feature is a multiple of 1/1024 and the sums are of double, so they are exact, and the
 * answer is the same for any number of workers.
 *
 * Verified after every iteration: the clusters' lengths add up to the number of points, their sums to the sum of all
 * points, exactly. At the end: each centre is the mean of its members, each point's centre is the nearest (computed in
 * double), and each centre is near the one around which its points were drawn. --iterations N does N iterations.
 */
#include "program.h"

#include <math.h>
#include <omp.h>

#define FEATURES 34
#define CLUSTERS 8
#define GRAIN 1024.0    /* features are multiples of 1 / GRAIN */
#define SPACING 2.0     /* centres are drawn from a cube of this side; points around them deviate by about 1 */
#define NEAR_CENTRE 0.3 /* some points of overlapping clusters go to the wrong one, which moves the centres a little */
#define NEARNESS 1e-4   /* float against double, of the squared distance */

typedef struct {
    char name;
    int points, iterations;
} kmeans_class;

static const kmeans_class classes[] = {
    {'S', 2000, 20}, {'W', 40000, 20}, {'A', 1000000, 20}, {'B', 4000000, 20}, {'C', 12000000, 20},
};

static float **features, **centre;
static int *membership;
static double ***partial_sum;
static long **partial_length;
static int points, workers;

static void *allocated(size_t count, size_t bytes) {
    void *block = calloc(count, bytes);
    if (!block) {
        fprintf(stderr, "kmeans: no memory for %zu times %zu bytes\n", count, bytes);
        exit(1);
    }
    return block;
}

/* Rows of one block. */
static float **rows_of(int rows) {
    float **row = allocated((size_t)rows, sizeof *row);
    row[0] = allocated((size_t)rows * FEATURES, sizeof **row);
    for (int r = 1; r < rows; r++) row[r] = row[r - 1] + FEATURES;
    return row;
}

static void allocate(void) {
    workers = omp_get_max_threads();
    features = rows_of(points);
    centre = rows_of(CLUSTERS);
    membership = allocated((size_t)points, sizeof *membership);
    partial_length = allocated((size_t)workers, sizeof *partial_length);
    partial_sum = allocated((size_t)workers, sizeof *partial_sum);
    for (int w = 0; w < workers; w++) {
        partial_length[w] = allocated(CLUSTERS, sizeof **partial_length);
        partial_sum[w] = allocated(CLUSTERS, sizeof **partial_sum);
        for (int k = 0; k < CLUSTERS; k++) partial_sum[w][k] = allocated(FEATURES, sizeof ***partial_sum);
    }
}

static void release(void) {
    for (int w = 0; w < workers; w++) {
        for (int k = 0; k < CLUSTERS; k++) free(partial_sum[w][k]);
        free(partial_sum[w]);
        free(partial_length[w]);
    }
    free(partial_sum);
    free(partial_length);
    free(membership);
    free(centre[0]);
    free(centre);
    free(features[0]);
    free(features);
}

/* Returns a random number in [0, 1). */
static double drawn(uint64_t *state) {
    uint64_t x = *state += 0x9e3779b97f4a7c15ULL;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return (double)((x ^ (x >> 31)) >> 11) * 0x1p-53;
}

/* The centre around which the points of cluster `k` are drawn. */
static void true_centre(int k, double *at) {
    uint64_t state = 1000 + (uint64_t)k * 0x632be59bd9b4e019ULL;
    for (int f = 0; f < FEATURES; f++) at[f] = SPACING * drawn(&state);
}

/* Point i is one of cluster i mod CLUSTERS; a feature deviates by the sum of three draws, whose variance is 1. */
static void draw_points(void) {
    double at[CLUSTERS][FEATURES];
    for (int k = 0; k < CLUSTERS; k++) true_centre(k, at[k]);
#pragma omp parallel for schedule(static)
    for (int i = 0; i < points; i++) {
        uint64_t state = (uint64_t)i * 0xd1342543de82ef95ULL;
        for (int f = 0; f < FEATURES; f++) {
            double off = 2.0 * (drawn(&state) + drawn(&state) + drawn(&state)) - 3.0;
            features[i][f] = (float)(floor((at[i % CLUSTERS][f] + off) * GRAIN) / GRAIN);
        }
        membership[i] = -1;
    }
    for (int k = 0; k < CLUSTERS; k++) memcpy(centre[k], features[k], FEATURES * sizeof **centre);
}

static inline float squared_distance(const float *a, const float *b) {
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int f = 0; f < FEATURES; f++) sum += (a[f] - b[f]) * (a[f] - b[f]);
    return sum;
}

static inline int nearest(const float *point) {
    int best = 0;
    float least = squared_distance(point, centre[0]);
    for (int k = 1; k < CLUSTERS; k++) {
        float d = squared_distance(point, centre[k]);
        if (d < least) least = d, best = k;
    }
    return best;
}

/* Puts each point into its cluster; returns how many changed theirs. */
static long assign_points(void) {
    long changed = 0;
#pragma omp parallel reduction(+ : changed)
    {
        int me = omp_get_thread_num();
#pragma omp for schedule(static)
        for (int i = 0; i < points; i++) {
            int k = nearest(features[i]);
            if (membership[i] != k) {
                changed++;
                membership[i] = k;
            }
            partial_length[me][k]++;
            for (int f = 0; f < FEATURES; f++) partial_sum[me][k][f] += features[i][f];
        }
    }
    return changed;
}

/* New centres from the workers' sums, which are then cleared. Returns by how much lengths and sums are off those of all
 * points. */
static double move_centres(const double *sum_of_all) {
    double off[FEATURES];
    for (int f = 0; f < FEATURES; f++) off[f] = -sum_of_all[f];
    long missing = points;
    for (int k = 0; k < CLUSTERS; k++) {
        double sum[FEATURES] = {0.0};
        long length = 0;
        for (int w = 0; w < workers; w++) {
            length += partial_length[w][k];
            partial_length[w][k] = 0;
            for (int f = 0; f < FEATURES; f++) {
                sum[f] += partial_sum[w][k][f];
                partial_sum[w][k][f] = 0.0;
            }
        }
        missing -= length;
        for (int f = 0; f < FEATURES; f++) {
            off[f] += sum[f];
            if (length > 0) centre[k][f] = (float)(sum[f] / (double)length);
        }
    }
    double worst = fabs((double)missing);
    for (int f = 0; f < FEATURES; f++) worst = fmax(worst, fabs(off[f]));
    return worst;
}

/* The sum of all points, feature by feature down the columns, in whole grains. */
static void sum_points(double *sum) {
#pragma omp parallel for schedule(dynamic)
    for (int f = 0; f < FEATURES; f++) {
        int64_t grains = 0;
        for (int i = 0; i < points; i++) grains += (int64_t)(GRAIN * features[i][f]);
        sum[f] = (double)grains / GRAIN;
    }
}

static double distance_in_double(const float *point, const double *at) {
    double sum = 0.0;
    for (int f = FEATURES - 1; f >= 0; f--) sum += (point[f] - at[f]) * (point[f] - at[f]);
    return sum;
}

/* Returns the number of points that are not with the nearest of the centres that assigned them. */
static long wrongly_assigned(double (*assigning)[FEATURES]) {
    long wrong = 0;
#pragma omp parallel for schedule(static) reduction(+ : wrong)
    for (int i = 0; i < points; i++) {
        if (membership[i] < 0 || membership[i] >= CLUSTERS) {
            wrong++;
            continue;
        }
        double own = distance_in_double(features[i], assigning[membership[i]]);
        for (int k = 0; k < CLUSTERS; k++)
            if (distance_in_double(features[i], assigning[k]) < own * (1.0 - NEARNESS)) {
                wrong++;
                break;
            }
    }
    return wrong;
}

/* Returns the greatest distance of a centre from the mean of its members, gathered cluster by cluster, and from the true centre. */
static void centres_off(double *off_mean, double *off_true) {
    *off_mean = *off_true = 0.0;
    for (int k = 0; k < CLUSTERS; k++) {
        double sum[FEATURES] = {0.0}, at[FEATURES];
        long length = 0;
        for (int i = 0; i < points; i++) {
            if (membership[i] != k) continue;
            length++;
            for (int f = 0; f < FEATURES; f++) sum[f] += features[i][f];
        }
        true_centre(k, at);
        for (int f = 0; f < FEATURES; f++) {
            *off_mean = fmax(*off_mean, fabs(centre[k][f] - (float)(sum[f] / (double)length)));
            *off_true = fmax(*off_true, fabs(centre[k][f] - at[f]));
        }
    }
}

int main(int argc, char **argv) {
    program_options o = program_parse(argc, argv);
    const kmeans_class *c = classes;
    while (c->name != o.class_) c++;
    int iterations = o.iterations ? o.iterations : c->iterations;

    points = c->points;
    allocate();
    draw_points();
    double sum_of_all[FEATURES], assigning[CLUSTERS][FEATURES], lost = 0.0;
    sum_points(sum_of_all);
    printf("Kmeans class %c: %d points, %d features, %d clusters\n", c->name, points, FEATURES, CLUSTERS);

    double seconds = 0.0;
    for (int it = 1; it <= iterations; it++) {
        for (int k = 0; k < CLUSTERS; k++)
            for (int f = 0; f < FEATURES; f++) assigning[k][f] = centre[k][f];
        double start = program_seconds();
        long changed = assign_points();
        lost = fmax(lost, move_centres(sum_of_all));
        seconds += program_seconds() - start;
        printf("%3d  changed %ld\n", it, changed);
    }

    double off_mean, off_true;
    long wrong = wrongly_assigned(assigning);
    centres_off(&off_mean, &off_true);
    printf("Lost: %g, wrongly assigned: %ld, centres off their means by %.3e, off the true ones by %.3f\n", lost, wrong,
           off_mean, off_true);
    uint64_t sum = program_checksum(PROGRAM_CHECKSUM_SEED, centre[0], CLUSTERS * FEATURES * sizeof **centre);
    sum = program_checksum(sum, membership, (size_t)points * sizeof *membership);
    release();
    /* Only where the centres have come to rest are they near the true ones. */
    int complete = iterations >= c->iterations, kept = lost == 0.0 && wrong == 0 && off_mean == 0.0;
    double got = lost > 0.0 ? lost : wrong ? (double)wrong : off_mean > 0.0 ? off_mean : off_true;
    return program_verdict(sum, seconds, complete || !kept, kept && off_true <= NEAR_CENTRE, got, 0.0, iterations,
                           c->iterations);
}
