// Robust mutexes whose owners end: the next one is told, may say that all is well, and if it does not, nobody can lock them any more. An owner's
// destructor of thread-specific data may still unlock one.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>

static pthread_mutex_t mutex, other;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static pthread_key_t key;
static int regions;

static void make(pthread_mutex_t *made, int kind) {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, kind);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(made, &attributes);
}

static void *ends(void *unused) {
    (void)unused;
    pthread_mutex_lock(&mutex);
    return NULL;
}

static void *ends_late(void *unused) {
    (void)unused;
    pthread_mutex_lock(&mutex);
    struct timespec time = {0, 200000000};
    nanosleep(&time, NULL);
    return NULL;
}

static void unlock(void *of) { pthread_mutex_unlock(of); }

static void *ends_well(void *unused) {
    (void)unused;
    pthread_mutex_lock(&mutex);
    pthread_mutex_lock(&other);
    pthread_mutex_unlock(&other);
    pthread_setspecific(key, &mutex);
    return NULL;
}

static void run(void *(*function)(void *)) {
    pthread_t thread;
    pthread_create(&thread, NULL, function, NULL);
    pthread_join(thread, NULL);
}

static void kinds(int kind) {
    make(&mutex, kind);
    make(&other, kind);
    run(ends);
    printf("%d", pthread_mutex_lock(&mutex) == EOWNERDEAD);
    printf(" %d", pthread_mutex_consistent(&mutex));
    printf(" %d", pthread_mutex_consistent(&mutex) == EINVAL);
    printf(" %d", pthread_mutex_unlock(&mutex));
    printf(" %d", pthread_mutex_unlock(&mutex) == EPERM);
    run(ends_well);
    printf(" %d", pthread_mutex_trylock(&mutex));
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    printf(" %d", pthread_cond_timedwait(&condition, &mutex, &time) == ETIMEDOUT);
    printf(" %d", pthread_mutex_unlock(&mutex));
    // Somebody waits when the owner ends.
    pthread_t thread;
    pthread_create(&thread, NULL, ends_late, NULL);
    struct timespec a_while = {0, 50000000};
    nanosleep(&a_while, NULL);
    printf(" %d", pthread_mutex_lock(&mutex) == EOWNERDEAD);
    pthread_join(thread, NULL);
    printf(" %d", pthread_mutex_unlock(&mutex));
    printf(" %d", pthread_mutex_lock(&mutex) == ENOTRECOVERABLE);
    printf(" %d\n", pthread_mutex_trylock(&mutex) == ENOTRECOVERABLE);
}

int main(void) {
#pragma omp parallel
    __sync_fetch_and_add(&regions, 1);
    pthread_key_create(&key, unlock);
    kinds(PTHREAD_MUTEX_NORMAL);
    kinds(PTHREAD_MUTEX_RECURSIVE);
    kinds(PTHREAD_MUTEX_ERRORCHECK);
    return 0;
}
