/* EP, the "embarrassingly parallel" kernel of the NAS Parallel Benchmarks, written to NAS-95-020 (section 2.2)
 * with NPB 3's class sizes and reference sums. Memory layout, all on the heap: one batch of 2^17 random numbers
 * per thread (1 MiB), rewritten for each batch, and one small record of sums per batch.
 *
 * 2^M pairs of uniform numbers become Gaussian deviates by the acceptance-rejection method; the results are the
 * sums of the deviates and the counts of pairs by square annulus. --iterations N does N batches of 2^16 pairs.
 */
#include "npb_random.h"
#include "program.h"

#include <math.h>

#define BATCH_PAIRS (1 << 16)
#define ANNULI 10
#define SEED 271828183ULL
#define EPSILON 1e-8

typedef struct {
    char name;
    int log_pairs;
    double sum_x, sum_y; /* the official sums */
} ep_class;

static const ep_class classes[] = {
    {'S', 24, -3.247834652034740e+3, -6.958407078382297e+3},
    {'W', 25, -2.863319731645753e+3, -6.320053679109499e+3},
    {'A', 28, -4.295875165629892e+3, -1.580732573678431e+4},
    {'B', 30, 4.033815542441498e+4, -2.660669192809235e+4},
    {'C', 32, 4.764367927995374e+4, -8.084072988043731e+4},
};

typedef struct {
    double sum_x, sum_y;
    int64_t count[ANNULI];
} batch_sums;

/* One batch: all its random numbers first, then the deviates. The two loops are apart because the first is a
 * chain of integer multiplications and the second is not; together they would wait for each other. */
static void run_batch(int64_t batch, double *restrict numbers, batch_sums *out) {
    uint64_t x = npb_random_skip(SEED, (uint64_t)batch * 2 * BATCH_PAIRS);
    for (int i = 0; i < 2 * BATCH_PAIRS; i++) numbers[i] = npb_random(&x);

    batch_sums s = {0};
    for (int i = 0; i < BATCH_PAIRS; i++) {
        double u = 2.0 * numbers[2 * i] - 1.0, v = 2.0 * numbers[2 * i + 1] - 1.0;
        double t = u * u + v * v;
        if (t > 1.0) continue;
        double f = sqrt(-2.0 * log(t) / t), gx = u * f, gy = v * f;
        s.count[(int)fmax(fabs(gx), fabs(gy))]++;
        s.sum_x += gx;
        s.sum_y += gy;
    }
    *out = s;
}

static void *allocate(size_t bytes) {
    void *p = malloc(bytes);
    if (!p) {
        fprintf(stderr, "ep: no memory for %zu bytes\n", bytes);
        exit(1);
    }
    return p;
}

int main(int argc, char **argv) {
    program_options o = program_parse(argc, argv);
    const ep_class *c = classes;
    while (c->name != o.class_) c++;
    int class_batches = (int)((1LL << c->log_pairs) / BATCH_PAIRS);
    int batches = o.iterations ? o.iterations : class_batches;

    batch_sums *sums = allocate((size_t)batches * sizeof *sums);
    double start = program_seconds();
#pragma omp parallel
    {
        double *numbers = allocate(2 * BATCH_PAIRS * sizeof *numbers);
#pragma omp for schedule(static)
        for (int b = 0; b < batches; b++) run_batch(b, numbers, &sums[b]);
        free(numbers);
    }

    /* In batch order, so that neither the number of threads nor their order changes a bit. */
    batch_sums total = {0};
    for (int b = 0; b < batches; b++) {
        total.sum_x += sums[b].sum_x;
        total.sum_y += sums[b].sum_y;
        for (int l = 0; l < ANNULI; l++) total.count[l] += sums[b].count[l];
    }
    double seconds = program_seconds() - start;
    free(sums);

    int64_t gaussians = 0;
    for (int l = 0; l < ANNULI; l++) gaussians += total.count[l];
    printf("EP class %c: %d batches of 2^16 pairs, %lld Gaussian pairs\n", c->name, batches, (long long)gaussians);
    printf("Sums: %.15e %.15e\n", total.sum_x, total.sum_y);
    for (int l = 0; l < ANNULI; l++) printf("Count %d: %lld\n", l, (long long)total.count[l]);

    int ok_x = fabs((total.sum_x - c->sum_x) / c->sum_x) <= EPSILON;
    int ok_y = fabs((total.sum_y - c->sum_y) / c->sum_y) <= EPSILON;
    return program_verdict(program_checksum(PROGRAM_CHECKSUM_SEED, &total, sizeof total), seconds,
                           batches == class_batches, ok_x && ok_y, ok_x ? total.sum_y : total.sum_x,
                           ok_x ? c->sum_y : c->sum_x, batches, class_batches);
}
