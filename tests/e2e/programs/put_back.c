/* A word is written and put back in a region in which another thread, which writes elsewhere in the page, comes to it between: what was
 * there only for a while must not be there afterwards. With three threads on three nodes the second one has the page beside its twin
 * then, and the first one merges. */
#include <omp.h>
#include <stdio.h>
#include <unistd.h>

static _Alignas(4096) volatile long page[512];

int main(void) {
    int wrong = 0;
    for (int round = 0; round < 3; round++) {
#pragma omp parallel num_threads(3)
        if (omp_get_thread_num() == 1) page[1] = 7;
        long seen = 0;
        /* Others have it, too: the next write makes a twin. */
#pragma omp parallel num_threads(3)
        if (omp_get_thread_num() == 2) seen = page[1];
#pragma omp parallel num_threads(3)
        {
            if (omp_get_thread_num() == 1) {
                page[1] = 5;
                usleep(100000);
                page[1] = 7;
            } else if (omp_get_thread_num() == 0) {
                usleep(50000);
                page[0] = 3 + round;
            }
        }
        wrong += seen != 7 || page[0] != 3 + round || page[1] != 7;
        if (wrong) printf("%ld %ld %ld\n", seen, page[0], page[1]);
    }
    puts(wrong ? "wrong" : "right");
    return wrong;
}
