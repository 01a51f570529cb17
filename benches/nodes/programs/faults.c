/* What a node pays for pages that another node has: reads, then leave to write, in any order and in a row.
 *
 * The last thread runs on the last node. Each round the first thread has written all pages before, so that every page costs the
 * other node one read fault and, as a reader, one upgrade. Prints medians of single accesses and means of rows of them.
 */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGE 4096
enum { PAGES = 4096, SINGLE = 512, ROUNDS = 6 };

static double samples[2][ROUNDS * SINGLE];
static int order[PAGES];

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int n) {
    qsort(values, (size_t)n, sizeof *values, by_size);
    return values[n / 2];
}

/* A page in eight, in any order: no two of them are neighbours. */
static void shuffle(void) {
    unsigned long long seed = 314159265;
    for (int i = 0; i < SINGLE; i++) order[i] = i * (PAGES / SINGLE);
    for (int i = SINGLE - 1; i > 0; i--) {
        seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
        const int j = (int)((seed >> 33) % (unsigned long long)(i + 1)), t = order[i];
        order[i] = order[j], order[j] = t;
    }
}

int main(void) {
    volatile char *pages = aligned_alloc(PAGE, (size_t)PAGES * PAGE);
    if (!pages) return 1;
    double streams[2][ROUNDS];
    shuffle();
    for (int round = 0; round < 2 * ROUNDS; round++) {
        const int single = round % 2, at = round / 2;
        for (long i = 0; i < PAGES; i++) pages[i * PAGE] = (char)round;
#pragma omp parallel
        if (omp_get_thread_num() == omp_get_num_threads() - 1) {
            const int count = single ? SINGLE : PAGES;
            for (int write = 0; write < 2; write++) {
                const double begin = omp_get_wtime();
                double before = begin;
                for (int i = 0; i < count; i++) {
                    volatile char *page = pages + (long)(single ? order[i] : i) * PAGE;
                    if (write)
                        page[1] = 1;
                    else
                        (void)page[0];
                    if (single) {
                        const double now = omp_get_wtime();
                        samples[write][at * SINGLE + i] = now - before;
                        before = now;
                    }
                }
                if (!single) streams[write][at] = (omp_get_wtime() - begin) / PAGES;
            }
        }
    }
    /* The first round also makes the pages. */
    printf("read_single_us %.3f\n", 1e6 * median(samples[0] + SINGLE, (ROUNDS - 1) * SINGLE));
    printf("upgrade_single_us %.3f\n", 1e6 * median(samples[1] + SINGLE, (ROUNDS - 1) * SINGLE));
    printf("read_stream_us %.3f\n", 1e6 * median(streams[0] + 1, ROUNDS - 1));
    printf("upgrade_stream_us %.3f\n", 1e6 * median(streams[1] + 1, ROUNDS - 1));
    return 0;
}
