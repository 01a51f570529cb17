// Nested functions (GNU C) whose addresses are taken: their trampolines are code on the stacks of all workers.
#include <stdio.h>
#include <stdlib.h>

__attribute__((noipa)) static long apply(long (*function)(long), long x) { return function(x); }

int main(void) {
    enum { N = 1 << 19 };
    long base = 3, *values = malloc(N * sizeof *values), sum = 0;
    long shift(long x) { return x + base; }
#pragma omp parallel for num_threads(3)
    for (long i = 0; i < N; i++) values[i] = apply(shift, i);
#pragma omp parallel for num_threads(3) reduction(+ : sum)
    for (long i = 0; i < N; i++) sum += apply(shift, values[i]);
    printf("%ld\n", apply(shift, sum));
    return 0;
}
