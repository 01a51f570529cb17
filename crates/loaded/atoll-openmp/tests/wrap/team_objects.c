/* pthread objects between the workers of a team, in pinned and in paged memory. */
#include "check.h"
#include <omp.h>
#include <pthread.h>
#include <semaphore.h>
struct all {
    pthread_mutex_t mutex;
    pthread_cond_t condition;
    pthread_rwlock_t rw;
    pthread_spinlock_t spin;
    sem_t sem;
    pthread_barrier_t barrier;
    long counter, turn;
};
static struct all global = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, PTHREAD_RWLOCK_INITIALIZER};
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int onces;
static void init(void) { usleep(20000); onces++; }
static void try(struct all *s)
{
    sem_init(&s->sem, 0, 1);
    pthread_barrier_init(&s->barrier, 0, 4);
    pthread_spin_init(&s->spin, 0);
    s->counter = s->turn = 0;
#pragma omp parallel num_threads(4)
    {
        int me = omp_get_thread_num();
        pthread_once(&once, init);
        CHECK(onces == 1);
        for (int i = 0; i < 1000; i++) {
            CHECK(pthread_mutex_lock(&s->mutex) == 0);
            s->counter++;
            if (i % 100 == 0)
                usleep(100);
            CHECK(pthread_mutex_unlock(&s->mutex) == 0);
            CHECK(pthread_rwlock_rdlock(&s->rw) == 0 && pthread_rwlock_unlock(&s->rw) == 0);
            CHECK(pthread_rwlock_wrlock(&s->rw) == 0 && pthread_rwlock_unlock(&s->rw) == 0);
            CHECK(sem_wait(&s->sem) == 0 && sem_post(&s->sem) == 0);
        }
        pthread_barrier_wait(&s->barrier);
        pthread_mutex_lock(&s->mutex);
        for (int i = 0; i < 100; i++) {
            while (s->turn % 4 != me)
                CHECK(pthread_cond_wait(&s->condition, &s->mutex) == 0);
            s->turn++;
            pthread_cond_broadcast(&s->condition);
        }
        pthread_mutex_unlock(&s->mutex);
    }
    CHECK(s->counter == 4000 && s->turn == 400);
}
int main(void)
{
    try(&global);
    char *p = calloc(LARGE, 1);
    struct all *s = (void *)(p + 5000000);
    pthread_mutex_init(&s->mutex, 0);
    pthread_cond_init(&s->condition, 0);
    pthread_rwlock_init(&s->rw, 0);
    push_out();
    try(s);
    puts("good");
}
