/* A region adds to all elements of an array, and the first thread adds to them again, so that with two nodes half of the pages go to the other
 * node and come back in each round. Each page is read before it is written. */
#include <stdio.h>
#include <stdlib.h>

enum { N = 2 << 20, ROUNDS = 6 };

int main(void) {
    double *a = malloc(N * sizeof *a), sum = 0;
    for (int i = 0; i < N; i++) a[i] = i & 1023;
    for (int round = 0; round < ROUNDS; round++) {
#pragma omp parallel for schedule(static)
        for (int i = 0; i < N; i++) a[i] += 1;
        for (int i = 0; i < N; i++) a[i] += 1;
    }
    for (int i = 0; i < N; i++) sum += a[i];
    printf("%.0f\n", sum);
}
