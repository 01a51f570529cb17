/* A region that writes neighbouring bytes of many pages from all workers, again and again: each node but the first has a twin of each
 * of 2048 pages. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

enum { BYTES = 8 << 20, ROUNDS = 6 };

int main(void) {
    unsigned char *data = calloc(BYTES, 1);
    for (int round = 0; round < ROUNDS; round++) {
#pragma omp parallel
        {
            int me = omp_get_thread_num(), all = omp_get_num_threads();
            for (long i = me; i < BYTES / 512; i += all)
                data[i * 512] += 1;
        }
    }
    for (long i = 0; i < BYTES; i++)
        if (data[i] != (i % 512 == 0 ? ROUNDS : 0)) {
            printf("byte %ld is %d\n", i, data[i]);
            return 1;
        }
    return 0;
}
