/* Each thread of a team, the main one included, has an array of 6M on its stack, and those besides the main one another of 34M, as OMP_STACKSIZE
 * allows them. Prints what the arrays add up to. */
#include <omp.h>
#include <stdio.h>

static long filled(int thread, long count)
{
    long block[count], sum = 0;
    for (int turn = 1; turn <= 3; turn++) {
        for (long i = 0; i < count; i++)
            block[i] = i * turn % 1009 + thread;
        for (long i = 0; i < count; i++)
            sum += block[i];
    }
    return sum;
}

int main(void)
{
    long sum = 0;
#pragma omp parallel num_threads(3) reduction(+ : sum)
    {
        int thread = omp_get_thread_num();
        sum += filled(thread, 6L << 17);
        if (thread > 0)
            sum += filled(thread, 34L << 17);
    }
    printf("%ld\n", sum);
    return 0;
}
