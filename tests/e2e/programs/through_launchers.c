// Streams through a global and a block of a library's, in a region: ARGV[1] rounds.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

enum { N = 1 << 20 };

static double table[N];

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 10;
    double *(*make)(size_t) = (double *(*)(size_t))dlsym(dlopen(argv[2], RTLD_NOW), "exported");
    double *block = make(8 * N);
    for (int round = 0; round < rounds; round++)
#pragma omp parallel for
        for (int i = 0; i < 8 * N; i++) {
            table[i & (N - 1)] += 1;
            block[i] = block[i] / 2 + table[i & (N - 1)];
        }
    printf("%g\n", block[N]);
    return 0;
}
