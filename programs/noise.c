/* OS noise as fixed-work quanta: every thread does the same small piece of work over and over and takes the time of each.
 * What a quantum takes longer than the quickest is time somebody else had: the kernel's ticks, interrupts, faults, other
 * programs. The work is random updates of a table of the thread's own (4 MiB, more than the first TLB reaches), so that what
 * translation costs is in it, too. Memory layout: tables and times on the heap, each touched before the first quantum.
 *
 * Distributions over all threads' quanta are printed in microseconds. The checksum is over the tables, which no time changes.
 */
#include "program.h"

#define TABLE_WORDS (1 << 19)
#define UPDATES 20000 /* a quantum: about a tenth of a millisecond */

typedef struct {
    char name;
    int quanta;
} noise_class;

static const noise_class classes[] = {{'S', 2000}, {'W', 10000}, {'A', 50000}, {'B', 200000}, {'C', 1000000}};

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static uint64_t quantum(uint64_t *table, uint64_t x) {
    for (int i = 0; i < UPDATES; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        table[x & (TABLE_WORDS - 1)] ^= x;
    }
    return x;
}

int main(int argc, char **argv) {
    program_options o = program_parse(argc, argv);
    const noise_class *c = classes;
    while (c->name != o.class_) c++;
    int quanta = o.iterations ? o.iterations : c->quanta, teams = 1;
#pragma omp parallel
    {
#pragma omp atomic
        teams++;
    }
    int threads = teams - 1;
    size_t all = (size_t)quanta * (size_t)threads;
    double *times = malloc(all * sizeof *times);
    uint64_t *tables = malloc((size_t)threads * TABLE_WORDS * sizeof *tables);
    if (!times || !tables) {
        fprintf(stderr, "noise: no memory for %zu quanta\n", all);
        return 1;
    }
    uint64_t last = 0;
    int lost = 0;
#pragma omp parallel for schedule(static, 1) reduction(^ : last) reduction(+ : lost)
    for (int t = 0; t < threads; t++) {
        uint64_t *table = tables + (size_t)t * TABLE_WORDS, x = 88172645463325252ULL;
        double *mine = times + (size_t)t * (size_t)quanta;
        for (int i = 0; i < TABLE_WORDS; i++) table[i] = (uint64_t)i;
        for (int q = 0; q < quanta; q++) mine[q] = 0.0;
        for (int q = 0; q < 100; q++) x = quantum(table, x);
        for (int q = 0; q < quanta; q++) {
            double start = program_seconds();
            x = quantum(table, x);
            mine[q] = program_seconds() - start;
        }
        /* The same work again from the same start must undo it: xor twice is nothing. */
        uint64_t again = 88172645463325252ULL;
        for (int q = 0; q < quanta + 100; q++) again = quantum(table, again);
        for (int i = 0; i < TABLE_WORDS; i++) lost += table[i] != (uint64_t)i;
        last ^= again ^ (uint64_t)(t + 1) * x;
    }
    double sum = 0.0;
    for (size_t i = 0; i < all; i++) sum += times[i];
    qsort(times, all, sizeof *times, compare);
#define AT(share) (times[(size_t)((double)(all - 1) * (share))] * 1e6)
    printf("Quanta: %zu by %d threads\n", all, threads);
    printf("Microseconds: least %.2f median %.2f p90 %.2f p99 %.2f p99.9 %.2f p99.99 %.2f most %.2f\n", AT(0.0), AT(0.5),
           AT(0.9), AT(0.99), AT(0.999), AT(0.9999), AT(1.0));
    printf("Noise: %.3f %% more than the least quantum on average\n", 100.0 * (sum / (double)all / times[0] - 1.0));
    uint64_t checksum = program_checksum(PROGRAM_CHECKSUM_SEED, &last, sizeof last);
    free(times), free(tables);
    return program_verdict(checksum, sum, 1, lost == 0, lost, 0.0, quanta, c->quanta);
}
