/* How fast a set of pages that a region always reads comes to a node: the first run makes the plan, later ones fetch by it.
 *
 * The first thread writes all pages before each run, the last one, on the last node, reads them. Prints the bytes a second from
 * the region's begin until all were read, so that faults on pages that are here already count as well.
 */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

#define PAGE 4096
enum { PAGES = 8192, RUNS = 9 };

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(void) {
    volatile char *pages = aligned_alloc(PAGE, (size_t)PAGES * PAGE);
    double seconds[RUNS];
    long wrong = 0;
    if (!pages) return 1;
    for (int run = 0; run < RUNS; run++) {
        for (long i = 0; i < (long)PAGES * PAGE; i += 64) pages[i] = (char)run;
        double begin = omp_get_wtime(), end = begin;
#pragma omp parallel
        if (omp_get_thread_num() == omp_get_num_threads() - 1) {
            long bad = 0;
            for (long i = 0; i < PAGES; i++) bad += pages[i * PAGE] != (char)run;
            end = omp_get_wtime();
            wrong += bad;
        }
        seconds[run] = end - begin;
    }
    qsort(seconds + 2, RUNS - 2, sizeof *seconds, by_size);
    printf("fetch_gb_s %.3f\n", (double)PAGES * PAGE / seconds[2 + (RUNS - 2) / 2] / 1e9);
    printf("fetch_wrong %ld\n", wrong);
    return wrong != 0;
}
