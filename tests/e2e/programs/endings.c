/* Ends in the way ARGV[1] says, called by the master, by the last worker, or by the last worker of a region that the last
 * worker begins (ARGV[2]: master, worker or inner), inside a region. */
#define _GNU_SOURCE
#include "e2e.h"
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

static void at_exit(void) { printf("atexit ran\n"); }

static void end(const char *how) {
    if (!strcmp(how, "exit")) exit(7);
    if (!strcmp(how, "_exit")) _exit(8);
    if (!strcmp(how, "_Exit")) _Exit(9);
    if (!strcmp(how, "quick_exit")) quick_exit(10);
    if (!strcmp(how, "abort")) abort();
    if (!strcmp(how, "segv")) *(volatile int *)8 = 1;
    if (!strcmp(how, "fpe")) { volatile int z = 0; z = 7 / z; }
    if (!strcmp(how, "raise")) raise(SIGTERM);
    if (!strcmp(how, "kill")) kill(getpid(), SIGTERM);
    if (!strcmp(how, "execv")) { char *const v[] = {"echo", "from exec", NULL}; execv("/bin/echo", v); }
    if (!strcmp(how, "execlp")) execlp("sh", "sh", "-c", "echo preload=${LD_PRELOAD:-none}; exit 11", (char *)NULL);
    if (!strcmp(how, "assert")) { fflush(stdout); __builtin_trap(); }
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    int last = strcmp(argv[2], "master") != 0, inner = !strcmp(argv[2], "inner");
    omp_set_max_active_levels(2);
    double *big = malloc(8 << 20);
    for (int i = 0; i < 1 << 20; i++) big[i] = i;
    atexit(at_exit);
    printf("before\n");
    if (!strcmp(argv[1], "return")) return 12;
    volatile int stop = 0;
#pragma omp parallel
    {
        int me = omp_get_thread_num(), n = omp_get_num_threads();
#pragma omp barrier
        if (me == (last ? n - 1 : 0)) {
            double t = omp_get_wtime();
            while (omp_get_wtime() < t + 0.1) big[me] += 1;
            if (!inner) end(argv[1]);
#pragma omp parallel num_threads(2)
            {
                if (omp_get_thread_num() == 1) end(argv[1]);
                while (!stop) big[me + 200] += 1;
            }
        }
        while (!stop) big[me + 100] += 1; /* the others never end by themselves */
    }
    printf("not reached\n");
    return 99;
}
