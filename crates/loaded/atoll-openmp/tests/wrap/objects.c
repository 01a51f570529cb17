/* pthread objects, also in paged memory, with ordinary threads. */
#include "check.h"
#include <pthread.h>
#include <semaphore.h>
#include <threads.h>
struct all {
    pthread_mutex_t mutex;
    pthread_cond_t condition;
    pthread_rwlock_t rw;
    sem_t sem;
    pthread_barrier_t barrier;
    long counter, turn;
};
static struct all global = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, PTHREAD_RWLOCK_INITIALIZER};
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int onces;
static void init(void) { usleep(10000); onces++; }
static void *work(void *p)
{
    struct all *s = p;
    pthread_once(&once, init);
    CHECK(onces == 1);
    for (int i = 0; i < 2000; i++) {
        CHECK(pthread_mutex_lock(&s->mutex) == 0);
        s->counter++;
        CHECK(pthread_mutex_unlock(&s->mutex) == 0);
        CHECK(pthread_rwlock_wrlock(&s->rw) == 0);
        s->counter++;
        CHECK(pthread_rwlock_unlock(&s->rw) == 0 && pthread_rwlock_rdlock(&s->rw) == 0 && pthread_rwlock_unlock(&s->rw) == 0);
        CHECK(sem_wait(&s->sem) == 0);
        s->counter++;
        CHECK(sem_post(&s->sem) == 0);
    }
    pthread_barrier_wait(&s->barrier);
    return 0;
}
static void *ping(void *p)
{
    struct all *s = p;
    pthread_mutex_lock(&s->mutex);
    for (int i = 0; i < 100; i++) {
        while (s->turn != 1)
            pthread_cond_wait(&s->condition, &s->mutex);
        s->turn = 0;
        pthread_cond_broadcast(&s->condition);
    }
    pthread_mutex_unlock(&s->mutex);
    return 0;
}
static void try(struct all *s)
{
    pthread_t t[4];
    sem_init(&s->sem, 0, 1);
    pthread_barrier_init(&s->barrier, 0, 4);
    s->counter = 0;
    pthread_mutex_t alone = PTHREAD_MUTEX_INITIALIZER;
    (void)alone;
    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&t[i], 0, work, s) == 0);
    for (int i = 0; i < 4; i++)
        pthread_join(t[i], 0);
    CHECK(s->counter > 8000 && s->counter <= 24000);
    CHECK(pthread_create(&t[0], 0, ping, s) == 0);
    pthread_mutex_lock(&s->mutex);
    for (int i = 0; i < 100; i++) {
        s->turn = 1;
        pthread_cond_broadcast(&s->condition);
        while (s->turn != 0)
            pthread_cond_wait(&s->condition, &s->mutex);
    }
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    ts.tv_nsec += 1000000;
    if (ts.tv_nsec >= 1000000000) ts.tv_sec++, ts.tv_nsec -= 1000000000;
    CHECK(pthread_cond_timedwait(&s->condition, &s->mutex, &ts) == ETIMEDOUT);
    pthread_mutex_unlock(&s->mutex);
    pthread_join(t[0], 0);
    CHECK(pthread_mutex_trylock(&s->mutex) == 0 && pthread_mutex_trylock(&s->mutex) == EBUSY);
    pthread_mutex_unlock(&s->mutex);
    CHECK(pthread_cond_destroy(&s->condition) == 0 && pthread_mutex_destroy(&s->mutex) == 0 && pthread_barrier_destroy(&s->barrier) == 0);
}
int main(void)
{
    try(&global);
    char *p = calloc(LARGE, 1);
    struct all *s = (void *)(p + 5000000);
    pthread_mutexattr_t a;
    pthread_mutexattr_init(&a);
    pthread_mutexattr_settype(&a, PTHREAD_MUTEX_ERRORCHECK);
    pthread_mutex_init(&s->mutex, 0);
    pthread_cond_init(&s->condition, 0);
    pthread_rwlock_init(&s->rw, 0);
    push_out();
    try(s);
    pthread_mutex_init(&s->mutex, &a);
    CHECK(pthread_mutex_lock(&s->mutex) == 0 && pthread_mutex_lock(&s->mutex) == EDEADLK && pthread_mutex_unlock(&s->mutex) == 0);
    pthread_mutexattr_settype(&a, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&s->mutex, &a);
    CHECK(pthread_mutex_lock(&s->mutex) == 0 && pthread_mutex_lock(&s->mutex) == 0);
    mtx_t *m = (void *)(p + 6000000);
    CHECK(mtx_init(m, mtx_plain) == thrd_success && mtx_lock(m) == thrd_success && mtx_unlock(m) == thrd_success);
    puts("good");
}
