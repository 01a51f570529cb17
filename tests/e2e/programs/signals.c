/* Waits in a region for signals. ARGV[1]: default (no handler), handler (counts, ends after the region), ignore. Says
 * "ready" once every worker computes. */
#include "e2e.h"
#include <signal.h>
#include <unistd.h>

static volatile sig_atomic_t got;
static volatile int handled_by = -1;
static void handler(int s) {
    (void)s;
    got = got + 1;
    handled_by = 1;
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "default";
    double limit = argc > 2 ? atof(argv[2]) : 20;
    if (!strcmp(how, "handler")) signal(SIGINT, handler), signal(SIGUSR1, handler), signal(SIGTERM, handler);
    if (!strcmp(how, "ignore")) signal(SIGINT, SIG_IGN);
    double *big = malloc(16 << 20);
    double end = omp_get_wtime() + limit;
    int ready = 0;
#pragma omp parallel
    {
        int me = omp_get_thread_num(), n = omp_get_num_threads();
#pragma omp barrier
#pragma omp master
        {
            ready = 1;
            printf("ready %d\n", n);
            fflush(stdout);
        }
        while (!got && omp_get_wtime() < end)
            for (int i = me; i < 2 << 20; i += n * 512) big[i] += 1;
    }
    (void)ready;
    usleep(100000); /* a second delivery would come now */
    printf("handled %d\n", (int)got);
    return 0;
}
