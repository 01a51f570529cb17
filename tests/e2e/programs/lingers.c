/* A region on all nodes, whose threads it prints; ends a second later. */
#include <stdio.h>
#include <unistd.h>

int main(void)
{
    int threads = 0;
#pragma omp parallel reduction(+ : threads)
    threads += 1;
    printf("%d\n", threads);
    fflush(stdout);
    sleep(1);
    return 0;
}
