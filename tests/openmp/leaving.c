/* exit() inside a region by the last worker, while the others wait for what never comes: the program ends with its status,
 * what was registered with atexit runs and sees what the worker wrote. ARGV[1] is how many values it writes. */
#include "check.h"
#include "spin.h"
#include <unistd.h>

static long n;
static long *written;
static volatile int left;

static void at_exit(void) {
    CHECK(left == omp_get_max_threads());
    for (long i = 0; i < n; i++)
        CHECK(written[i] == i + left);
    /* exit() was called with 0, or nobody would know that the checks ran: this decides. */
    fflush(NULL);
    _exit(result());
}

int main(int argc, char **argv) {
    n = size_of(argc, argv, 5000);
    written = calloc((size_t)n, sizeof *written);
    atexit(at_exit);
    volatile int never = 0;
#pragma omp parallel
    {
        int me = omp_get_thread_num(), threads = omp_get_num_threads();
#pragma omp for
        for (long i = 0; i < n; i++)
            written[i] = i;
        if (me == threads - 1) {
            for (long i = 0; i < n; i++)
                written[i] += threads;
            left = threads;
            exit(3);
        }
        struct waiting w = {0};
        while (!never)
            spin(&w);
    }
    return 1;
}
