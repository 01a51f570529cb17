/* A signal comes while the program ends, some microseconds (the argument) after the last region; its handler writes pages that other
 * nodes have. */
#include "e2e.h"
#include <signal.h>
#include <sys/time.h>

enum { PAGES = 64, WORDS = 512 };
static volatile long words[PAGES * WORDS] __attribute__((aligned(4096)));

static void handler(int signal) {
    (void)signal;
    for (int page = 0; page < PAGES; page++) words[page * WORDS] += 1;
}

int main(int count, char **arguments) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
#pragma omp parallel
    for (int page = 0; page < PAGES; page++) words[page * WORDS + 1 + omp_get_thread_num()] = page;
    printf("all well\n");
    fflush(stdout);
    struct itimerval once = {{0, 0}, {0, count > 1 ? atoi(arguments[1]) : 1}};
    setitimer(ITIMER_REAL, &once, NULL);
    return 0;
}
