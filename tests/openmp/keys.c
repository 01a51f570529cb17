/* Keys of thread-specific data: made before, between and inside regions, deleted, and made anew by pthreads and by C11. Each thread has a
 * value of its own, and a key that was made anew has none. */
#include "check.h"
#include <pthread.h>
#include <stdint.h>
#include <threads.h>

enum { KEYS = 60 };

static pthread_key_t keys[KEYS];
static long ended;

static void at_end(void *value) {
    __atomic_fetch_add(&ended, (intptr_t)value, __ATOMIC_RELAXED);
}

static void *value_of(int key) {
    return (void *)(intptr_t)(1 + key * 1000 + omp_get_thread_num());
}

static void set_all(void) {
#pragma omp parallel
    for (int k = 0; k < KEYS; k++) {
        CHECK(pthread_getspecific(keys[k]) == NULL);
        CHECK(pthread_setspecific(keys[k], value_of(k)) == 0);
    }
}

static void see_all(void) {
#pragma omp parallel
    for (int k = 0; k < KEYS; k++)
        CHECK(pthread_getspecific(keys[k]) == value_of(k));
}

static void *thread(void *key) {
    CHECK(pthread_setspecific(*(pthread_key_t *)key, (void *)7) == 0);
    return NULL;
}

int main(void) {
    for (int k = 0; k < KEYS / 3; k++)
        CHECK(pthread_key_create(&keys[k], NULL) == 0);
#pragma omp parallel
    CHECK(pthread_getspecific(keys[0]) == NULL);
    /* Between regions. */
    for (int k = KEYS / 3; k < 2 * KEYS / 3; k++)
        CHECK(pthread_key_create(&keys[k], NULL) == 0);
    /* Inside one, each by another thread, and used there by all. */
#pragma omp parallel
    {
#pragma omp for schedule(static, 1)
        for (int k = 2 * KEYS / 3; k < KEYS; k++)
            CHECK(pthread_key_create(&keys[k], NULL) == 0);
        for (int k = 2 * KEYS / 3; k < KEYS; k++) {
            CHECK(pthread_setspecific(keys[k], value_of(k)) == 0);
            CHECK(pthread_getspecific(keys[k]) == value_of(k));
            CHECK(pthread_setspecific(keys[k], NULL) == 0);
        }
    }
    for (int a = 0; a < KEYS; a++)
        for (int b = 0; b < a; b++)
            CHECK(keys[a] != keys[b]);
    set_all();
    see_all();
    /* Numbers of deleted keys are given again, and values do not come back. */
    for (int k = 0; k < KEYS; k++)
        CHECK(pthread_key_delete(keys[k]) == 0);
    for (int k = 0; k < KEYS; k++)
        CHECK(tss_create(&keys[k], NULL) == thrd_success);
    set_all();
    see_all();
#pragma omp parallel
    {
        CHECK(tss_set(keys[3], NULL) == thrd_success && tss_get(keys[3]) == NULL);
    }
    tss_delete(keys[3]);
    /* A thread of the program's own has the destructor called. */
    CHECK(pthread_key_create(&keys[3], at_end) == 0);
    pthread_t own;
    CHECK(pthread_create(&own, NULL, thread, &keys[3]) == 0 && pthread_join(own, NULL) == 0);
    CHECK(ended == 7);
    CHECK(pthread_setspecific(keys[3], NULL) == 0 && pthread_key_delete(keys[3]) == 0);
    CHECK(pthread_key_delete(keys[3]) != 0 && pthread_setspecific(keys[3], &ended) != 0);
    return result();
}
