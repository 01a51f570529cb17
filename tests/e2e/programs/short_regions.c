/* 1000 regions that do next to nothing, of two kinds, with the master's own writes between them. */
#include <omp.h>
#include <stdio.h>

enum { REGIONS = 1000 };

static long counts[256], total;

int main(void) {
    long expected = 0;
    for (int region = 0; region < REGIONS; region++) {
        int threads = 1;
        if (region % 2) {
#pragma omp parallel
            {
                counts[omp_get_thread_num()] += region;
                if (omp_get_thread_num() == 0)
                    threads = omp_get_num_threads();
            }
            expected += (long)threads * region;
        } else {
#pragma omp parallel for
            for (int i = 0; i < 256; i++)
                counts[i] += 1;
            expected += 256;
        }
        counts[region % 256] += 1;
        expected += 1;
    }
    for (int i = 0; i < 256; i++)
        total += counts[i];
    if (total != expected)
        printf("%ld, expected %ld\n", total, expected);
    return total != expected;
}
