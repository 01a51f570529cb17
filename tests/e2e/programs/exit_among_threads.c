/* Ends by `exit` while threads of the program's own begin their first regions, for which workers are started meanwhile. */
#include "e2e.h"
#include <pthread.h>

static void *begin_regions(void *unused) {
    for (int round = 0; round < 50; round++) {
#pragma omp parallel num_threads(1 + round % 3)
        __asm__ volatile("" ::: "memory");
    }
    return unused;
}

int main(void) {
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) pthread_create(&threads[i], NULL, begin_regions, NULL);
#pragma omp parallel num_threads(2)
    if (omp_get_thread_num() == 0) exit(3);
    return 99;
}
