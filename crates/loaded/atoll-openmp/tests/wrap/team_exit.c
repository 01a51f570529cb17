/* exit in a worker that is not the master ends the program: handlers, buffers, status. */
#include "check.h"
#include <omp.h>
static void at_end(void) { puts("handler"); }
int main(void)
{
    atexit(at_end);
    puts("good");
    fflush(stdout);
    printf("buffered\n");
#pragma omp parallel num_threads(4)
    {
        if (omp_get_thread_num() == 2) {
            usleep(20000);
            exit(77);
        }
        for (;;)
            usleep(1000);
    }
}
