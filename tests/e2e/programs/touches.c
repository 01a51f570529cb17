// Touches pages of one array in a way that a trace of it can be checked against: worker w of 4 writes pages 16w to 16w+7,
// reads 16w+8 to 16w+15, and behind a barrier reads the first page of the worker above. Prints the array's address.
#include <omp.h>
#include <stdio.h>
#include <sys/mman.h>

enum { PAGE = 4096, SHARE = 16, WORKERS = 4 };

static volatile char *array;

static void touch(int rounds)
{
#pragma omp parallel num_threads(WORKERS)
    {
        int worker = omp_get_thread_num();
        volatile char *mine = array + (long)worker * SHARE * PAGE;
        for (int round = 0; round < rounds; round++)
            for (int page = 0; page < SHARE; page++) {
                if (page < SHARE / 2)
                    mine[(long)page * PAGE + 8 * round] = 1;
                else
                    (void)mine[(long)page * PAGE + 8 * round];
            }
#pragma omp barrier
        (void)array[(long)((worker + 1) % WORKERS) * SHARE * PAGE];
    }
}

int main(void)
{
    array = mmap(0, WORKERS * SHARE * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (array == MAP_FAILED)
        return 1;
    touch(3);
    touch(1);
    // The last four bytes of one page and the first four of the next.
    *(volatile long *)(array + PAGE - 4) = 1;
    printf("%p\n", (void *)array);
    munmap((void *)array, WORKERS * SHARE * PAGE);
    return 0;
}
