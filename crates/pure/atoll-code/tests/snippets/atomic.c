/* Functions that synchronise inline: all must be found atomic at every level. */
#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

int flag, data;
struct box {
    long pad[3];
    int ready;
    double value;
};

void atomic_histogram(int *bins, const unsigned char *x, long n) {
    for (long i = 0; i < n; i++) {
#pragma omp atomic
        bins[x[i]]++;
    }
}

void atomic_double_sum(double *sum, double x) {
#pragma omp atomic
    *sum += x;
}

int atomic_capture(int *at) {
    int old;
#pragma omp atomic capture
    old = (*at)++;
    return old;
}

int atomic_compare_and_swap(int *parent, int u, int v) { return __sync_bool_compare_and_swap(parent + u, -1, v); }

int atomic_exchange_word(atomic_int *a) { return atomic_exchange(a, 3); }

void atomic_store_word(atomic_int *a) { atomic_store(a, 3); }

void atomic_flush_consumer(void) {
    while (1) {
#pragma omp flush
        if (flag) break;
    }
#pragma omp flush
    data++;
}

void atomic_flush_producer(void) {
    data = 7;
#pragma omp flush
    flag = 1;
}

void atomic_full_fence(void) {
    data = 1;
    __sync_synchronize();
    flag = 1;
}

void atomic_lock_by_hand(volatile int *lock) {
    while (__sync_lock_test_and_set(lock, 1))
#ifdef __aarch64__
        while (*lock) __asm__ volatile("yield");
#else
        while (*lock) __builtin_ia32_pause();
#endif
    data++;
    __sync_lock_release(lock);
}

/* Loads are ordinary from here on, so only the loop shows the wait. */

int atomic_acquire_spin(void) {
    int seen;
    do {
#pragma omp atomic read acquire
        seen = flag;
    } while (!seen);
    return data;
}

int atomic_volatile_spin(volatile int *at) {
    while (*at == 0) {
    }
    return data;
}

double atomic_spin_on_member(struct box *b) {
    while (!__atomic_load_n(&b->ready, __ATOMIC_ACQUIRE)) {
    }
    return b->value;
}

double atomic_spin_on_element(struct box *b, int i) {
    while (__atomic_load_n(&b[i].ready, __ATOMIC_ACQUIRE) < 5) {
    }
    return b->value;
}

int atomic_bounded_spin(void) {
    for (int spins = 0; spins < 10000; spins++)
        if (__atomic_load_n(&flag, __ATOMIC_ACQUIRE)) return 1;
    return 0;
}

void atomic_spin_that_yields(int wanted) {
    for (int spins = 0;; spins++) {
        int seen = __atomic_load_n(&flag, __ATOMIC_ACQUIRE);
        if (seen >= wanted) return;
        if (spins >= 200) sched_yield();
    }
}

void atomic_spin_that_asks_the_time(void) {
    while (!__atomic_load_n(&flag, __ATOMIC_ACQUIRE)) omp_get_wtime();
}

int atomic_spin_by_comparing(const char *message) {
    while (strcmp(message, "go") != 0) __asm__ volatile("" ::: "memory");
    return data;
}

/* The tested value is chosen between two loads. */
int atomic_spin_on_a_choice(volatile int *a, volatile int *b) {
    int seen;
    do {
        int x = *a, y = *b;
        seen = x > 3 ? y : x;
    } while (seen == 0);
    return data;
}

void atomic_mutex(pthread_mutex_t *lock) {
    pthread_mutex_lock(lock);
    data++;
    pthread_mutex_unlock(lock);
}

/* One loop over all flags, which advances only when it has seen one set. */
int atomic_gathers(volatile int *ready, int n) {
    int i = 0;
    while (i < n)
        if (ready[i]) {
            data += i;
            i++;
        }
    return data;
}

__attribute__((noinline)) static int is_ready(const struct box *b) { return __atomic_load_n(&b->ready, __ATOMIC_ACQUIRE); }
void atomic_spin_by_a_call(struct box *b) {
    while (!is_ready(b)) {
    }
}

/* The wait is inside the loop that works, as in a pipeline. */
void atomic_pipeline(double *a, int n, volatile int *progress) {
    for (int k = 0; k < n; k++) {
        while (progress[0] < k) {
        }
        for (int j = 0; j < n; j++) a[k * n + j] += 1;
        progress[16] = k;
    }
}

int atomic_two_flags(volatile int *want, volatile int *turn) {
    want[0] = 1;
    *turn = 1;
    while (want[1] && *turn == 1) {
    }
    return data;
}

__attribute__((noinline)) static void deep(int *at, int n) {
    if (n > 0) deep(at, n - 1);
    else __sync_fetch_and_add(at, 1);
}
void atomic_far_below(int *at) { deep(at, 5); }

static int order(const void *a, const void *b) {
    __sync_fetch_and_add(&data, 1);
    return *(const int *)a - *(const int *)b;
}
void atomic_in_a_callback(int *a, size_t n) { qsort(a, n, sizeof *a, order); }

int atomic_in_a_switch(int kind, int *a) {
    switch (kind) {
    case 0: return a[3];
    case 1: return a[1] * 2;
    case 2: return a[9];
    case 3: return 7 * a[2];
    case 4: return a[7];
    case 5: return __sync_fetch_and_add(a, 3);
    case 6: a[2] = 0; return 12;
    default: return 0;
    }
}

__attribute__((cold, noinline)) static void rare(int *a) { __sync_fetch_and_add(a, 1); }
void atomic_in_cold_code(int *a, int n) {
    for (int i = 0; i < n; i++)
        if (__builtin_expect(a[i] < 0, 0)) rare(a + i);
}

void atomic_task(int *a) {
#pragma omp task
    {
#pragma omp atomic
        a[0]++;
    }
}

int main(void) { return 0; }
