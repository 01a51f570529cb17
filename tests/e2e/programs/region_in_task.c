/* A task outside of any region has an array of its own, which a region in the task reads on all nodes. */
#include <stdio.h>

enum { N = 1000 };

int main(void) {
    int numbers[N];
    long sum = 0;
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < N; i++)
            numbers[i] = i + round;
#pragma omp task firstprivate(numbers) shared(sum)
        {
#pragma omp parallel for reduction(+ : sum)
            for (int i = 0; i < N; i++)
                sum += numbers[i];
        }
#pragma omp taskwait
    }
    printf("%ld\n", sum);
    return 0;
}
