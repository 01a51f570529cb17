/* A program of clang's with a library of gcc's: both begin regions, which must have the same workers, and no others may exist. */
#define _GNU_SOURCE
#include <omp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void part(int *who);
int threads_of_process(void);

int main(void) {
    int ours[64] = {0}, theirs[64] = {0};
    int before = threads_of_process();
#pragma omp parallel
    ours[omp_get_thread_num()] = gettid();
    int one = threads_of_process();
    part(theirs);
    int both = threads_of_process();
    int workers = 0;
    while (workers < 64 && ours[workers])
        workers++;
    if (memcmp(ours, theirs, sizeof ours) || both != one || one > before + workers) {
        printf("%d, %d, %d threads\n", before, one, both);
        return 1;
    }
    printf("the same %d workers\n", workers);
    return 0;
}
