// Arrays of known heat for profiles: `hot` is read eight times as often as `warm`, `cold` is written once; then `hot` is freed and
// `later` comes, likely at its address. ARGV[1]: rounds; ARGV[2]: rounds of `later`, if others.
#include <stdio.h>
#include <stdlib.h>

enum { N = 1 << 20 };

double warm[N];
double cold[N];

static double sweep(const double *volatile array)
{
    double sum = 0;
#pragma omp parallel for reduction(+ : sum)
    for (int i = 0; i < N; i++)
        sum += array[(i * 17) & (N - 1)];
    return sum;
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 10;
    double *hot = malloc(N * sizeof *hot);
    double sum = 0;
    for (int i = 0; i < N; i++) {
        hot[i] = i;
        cold[i] = warm[i] = 1;
    }
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < 8; i++)
            sum += sweep(hot);
        sum += sweep(warm);
    }
    free(hot);
    int later_rounds = argc > 2 ? atoi(argv[2]) : rounds;
    double *later = malloc(N * sizeof *later);
    for (int round = 0; round < later_rounds; round++) {
        for (int i = 0; i < N; i++)
            later[i] = i + sum;
        // Each round is to happen.
        __asm__ volatile("" : : "r"(later) : "memory");
    }
    printf("%g\n", later[3]);
    free(later);
    return 0;
}
