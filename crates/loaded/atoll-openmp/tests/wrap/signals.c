/* The program's own handlers, masks and alternate stack; SIGBUS of its own, and paging goes on. */
#include "check.h"
#include <pthread.h>
#include <setjmp.h>
#include <sys/mman.h>
#include <poll.h>
static volatile int got;
static volatile unsigned long sum;
static unsigned char *large;
static sigjmp_buf back;
static void count(int s) { got += s; }
static void touch(int s)
{
    for (size_t i = 0; i < LARGE; i += 4096)
        sum += large[i]++;
    got++;
}
static void own(int s, siginfo_t *info, void *context)
{
    got++;
    siglongjmp(back, 1);
}
int main(void)
{
    large = calloc(LARGE, 1);
    sigset_t all, old;
    sigfillset(&all);
    CHECK(sigprocmask(SIG_BLOCK, &all, &old) == 0);
    for (size_t i = 0; i < LARGE; i += 4096)
        large[i] = 1;
    CHECK(sigprocmask(SIG_SETMASK, &all, 0) == 0 && pthread_sigmask(SIG_SETMASK, &all, 0) == 0);
    for (size_t i = 0; i < LARGE; i += 4096)
        large[i]++;
    CHECK(sigprocmask(SIG_SETMASK, &old, 0) == 0);
    /* A handler with everything blocked, in which memory faults. */
    struct sigaction a = {.sa_handler = touch}, b;
    sigfillset(&a.sa_mask);
    CHECK(sigaction(SIGUSR1, &a, 0) == 0);
    raise(SIGUSR1);
    CHECK(got == 1 && sum == 2 * (LARGE / 4096));
    CHECK(sigaction(SIGUSR1, 0, &b) == 0 && b.sa_handler == touch);
    /* SIGBUS of the program's own: a mapping beyond its file's end. */
    a.sa_sigaction = own;
    a.sa_flags = SA_SIGINFO;
    CHECK(sigaction(SIGBUS, &a, &b) == 0 && b.sa_handler == SIG_DFL);
    CHECK(sigaction(SIGBUS, 0, &b) == 0 && b.sa_sigaction == own);
    int fd = open("empty", O_RDWR | O_CREAT, 0600);
    volatile char *m = mmap(0, 4096, PROT_READ, MAP_SHARED, fd, 0);
    CHECK(m != MAP_FAILED);
    got = 0;
    if (sigsetjmp(back, 1) == 0) {
        char c = m[0];
        printf("never %d\n", c);
    }
    CHECK(got == 1);
    for (size_t i = 0; i < LARGE; i += 4096)
        CHECK(large[i] == 3);
    CHECK(signal(SIGBUS, count) == (void *)own);
    got = 0;
    raise(SIGBUS);
    CHECK(got == SIGBUS);
    CHECK(signal(SIGBUS, SIG_IGN) == count);
    raise(SIGBUS);
    CHECK(signal(SIGBUS, SIG_DFL) == SIG_IGN);
    /* The alternate stack. */
    stack_t s = {.ss_sp = malloc(100000), .ss_size = 100000}, t;
    CHECK(sigaltstack(0, &t) == 0 && t.ss_flags == SS_DISABLE);
    CHECK(sigaltstack(&s, 0) == 0);
    CHECK(sigaltstack(0, &t) == 0 && t.ss_sp == s.ss_sp && t.ss_size == s.ss_size && t.ss_flags == 0);
    a = (struct sigaction){.sa_handler = touch, .sa_flags = SA_ONSTACK};
    CHECK(sigaction(SIGUSR2, &a, 0) == 0);
    got = 0;
    raise(SIGUSR2);
    CHECK(got == 1);
    s.ss_size = 10;
    CHECK(sigaltstack(&s, 0) == -1 && errno == ENOMEM);
    /* Waiting with everything but one signal blocked. */
    CHECK(signal(SIGALRM, count) == SIG_DFL);
    sigdelset(&all, SIGALRM);
    got = 0;
    alarm(1);
    CHECK(sigsuspend(&all) == -1 && errno == EINTR && got == SIGALRM);
    struct timespec time = {0, 1000};
    CHECK(ppoll(0, 0, &time, &all) == 0);
    CHECK(pselect(0, 0, 0, 0, &time, &all) == 0);
    /* A read interrupted half way is short, not lost. */
    int p[2];
    CHECK(pipe(p) == 0);
    siginterrupt(SIGALRM, 1);
    alarm(1);
    CHECK(write(p[1], large, LARGE) == 65536 && got == 2 * SIGALRM);
    puts("good");
}
