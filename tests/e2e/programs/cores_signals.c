/* Signals on segmentation cores: handlers of both forms, masks, timers, faults that are caught, an alternate stack. */
#define _GNU_SOURCE
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

static volatile sig_atomic_t plain, with_info, ticks, caught;
static void *volatile where;
static sigjmp_buf back;

static void on_plain(int s) { plain += s; }
static void on_info(int s, siginfo_t *i, void *c) {
    if (s == SIGUSR2 && i->si_signo == s && c) with_info++;
}
static void on_tick(int s) { ticks++; }
static void on_fault(int s, siginfo_t *i, void *c) {
    int here;
    where = &here;
    caught++;
    siglongjmp(back, 1);
}

int main(int argc, char **argv) {
    signal(SIGUSR1, on_plain);
    struct sigaction a = {.sa_flags = SA_SIGINFO};
    a.sa_sigaction = on_info;
    sigaction(SIGUSR2, &a, NULL);
    raise(SIGUSR1);
    kill(getpid(), SIGUSR2);
    if (plain != SIGUSR1 || with_info != 1) return printf("raised: %d %d\n", plain, with_info), 1;

    sigset_t set, old;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, &old);
    raise(SIGUSR1);
    if (plain != SIGUSR1) return puts("a masked signal came"), 1;
    sigprocmask(SIG_SETMASK, &old, NULL);
    if (plain != 2 * SIGUSR1) return puts("an unmasked signal did not come"), 1;

    /* While it computes, with numbers in registers that a handler must leave alone. */
    signal(SIGALRM, on_tick);
    struct itimerval t = {{0, 2000}, {0, 2000}};
    setitimer(ITIMER_REAL, &t, NULL);
    double x = 0, y = 0;
    long n = 0;
    while (ticks < 20) {
        double z = n % 1000;
        x += z;
        y += z * 2;
        n++;
    }
    if (y != 2 * x) return puts("a handler changed a register"), 1;
    /* While it waits. */
    int before = ticks;
    while (ticks < before + 3) pause();
    memset(&t, 0, sizeof t);
    setitimer(ITIMER_REAL, &t, NULL);

    static char stack[65536];
    stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack};
    sigaltstack(&alternate, NULL);
    a.sa_sigaction = on_fault;
    a.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGSEGV, &a, NULL);
    for (volatile int i = 0; i < 3; i++)
        if (!sigsetjmp(back, 1)) *(volatile int *)strtoul(argv[1], NULL, 0) = 1;
    if (caught != 3 || (char *)where < stack || (char *)where >= stack + sizeof stack)
        return printf("faults: %d\n", caught), 1;
    signal(SIGSEGV, SIG_DFL);
    puts("ok");
    fflush(stdout);
    abort();
}
