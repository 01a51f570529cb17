/* Without OpenMP: what a thread that is made once memory is managed knows of itself: its signal mask, its guard, and signals sent to it
 * alone, as runtimes with collectors send them to stop their threads. */
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES = 80 << 20 };

static sem_t begun, stopped;
static char *much;
/* How many threads have had their signal: a thread does not end before. */
static volatile sig_atomic_t handled;

static void on_signal(int signal) {
    (void)signal;
    handled++;
    sem_post(&stopped);
}

static void *work(void *name) {
    int before = handled;
    sigset_t mask;
    pthread_attr_t attributes;
    size_t guard = 0;
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    pthread_getattr_np(pthread_self(), &attributes);
    pthread_attr_getguardsize(&attributes, &guard);
    pthread_attr_destroy(&attributes);
    printf("%s: USR1 %d, USR2 %d, guard %s\n", (char *)name, sigismember(&mask, SIGUSR1), sigismember(&mask, SIGUSR2), guard ? "yes" : "no");
    sem_post(&begun);
    volatile char *at = much;
    for (int round = 0; round < 6 || handled == before; round++)
        for (size_t i = 0; i < BYTES; i += 4096)
            at[i]++;
    return NULL;
}

int main(void) {
    much = malloc(BYTES);
    memset(much, 1, BYTES);
    sem_init(&begun, 0, 0);
    sem_init(&stopped, 0, 0);
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigaction(SIGUSR1, &action, NULL);
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGUSR2);
    for (int round = 0; round < 2; round++) {
        pthread_t made;
        pthread_create(&made, NULL, work, round ? "second" : "first");
        sem_wait(&begun);
        pthread_kill(made, SIGUSR1);
        sem_wait(&stopped);
        pthread_join(made, NULL);
        pthread_sigmask(SIG_BLOCK, &mask, NULL);
    }
    return 0;
}
