// A team with more members than any machine has CPUs: all of them run, and write pages that others read.
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 600, seen = 0, wrong = 0;
    enum { EACH = 2048 };
    int *values = malloc(sizeof *values * threads * EACH);
#pragma omp parallel num_threads(threads) reduction(+ : seen, wrong)
    {
        int me = omp_get_thread_num();
        seen += omp_get_num_threads() == threads;
        for (int i = 0; i < EACH; i++) values[me * EACH + i] = me;
#pragma omp barrier
        int other = (me + threads / 2) % threads;
        for (int i = 0; i < EACH; i++) wrong += values[other * EACH + i] != other;
    }
    printf("%d of %d, wrong %d\n", seen, threads, wrong);
    return 0;
}
