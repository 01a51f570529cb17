/* `copyprivate` of variables that each thread has for itself, arrays among them, in a region and in a function that it calls by address. */
#include <stdio.h>

enum { N = 1 << 12 };
static int scalar;
static double array[N];
#pragma omp threadprivate(scalar, array)

static int one(int round) {
    int wrong = 0;
    for (int i = 0; i < N; i++)
        array[i] = -1;
#pragma omp barrier
#pragma omp single copyprivate(scalar, array)
    {
        scalar = 77 + round;
        for (int i = 0; i < N; i++)
            array[i] = i + round;
    }
    for (int i = 0; i < N; i++)
        wrong += array[i] != i + round;
    return wrong + (scalar != 77 + round);
}

int main(int count, char **arguments) {
    (void)arguments;
    int (*volatile by_address)(int) = one;
    int wrong = 0;
    for (int round = 0; round < 4; round++) {
#pragma omp parallel reduction(+ : wrong)
        wrong += one(round);
        if (count > 1) {
#pragma omp parallel reduction(+ : wrong)
            wrong += by_address(round);
        }
    }
    printf("wrong: %d\n", wrong);
    return wrong != 0;
}
