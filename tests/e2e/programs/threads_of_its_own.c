// Threads of the program's own that begin regions at the same time: they sum over their stacks and blocks, and copy in from
// their storage. They are joined, detached, leave by pthread_exit, run on stacks of their own, or are C11's. Many more run one
// after the other than at once.
#define _GNU_SOURCE
#include "e2e.h"
#include <pthread.h>
#include <threads.h>
#include <unistd.h>

static __thread int own = 7;
static int copied = 3;
#pragma omp threadprivate(copied)

// A region whose variables lie on this stack, in small and in large blocks.
static void region(int seed, size_t bytes) {
    long sum = 0, on_stack[64];
    int *block = malloc(bytes);
    size_t n = bytes / sizeof *block;
    for (int i = 0; i < 64; i++) on_stack[i] = seed;
    for (size_t i = 0; i < n; i++) block[i] = seed;
    copied = seed;
#pragma omp parallel num_threads(3) reduction(+ : sum) copyin(copied)
    {
        CHECK(copied == seed);
        char *inner = malloc(100);
        memset(inner, seed, 100);
#pragma omp for
        for (size_t i = 0; i < n; i++) sum += block[i];
#pragma omp for
        for (int i = 0; i < 64; i++) on_stack[i] += omp_get_num_threads();
        CHECK(inner[99] == (char)seed);
        free(inner);
    }
    CHECK(sum == (long)n * seed);
    for (int i = 0; i < 64; i++) CHECK(on_stack[i] == seed + 3);
    free(block);
}

static void *work(void *argument) {
    int seed = (int)(long)argument;
    CHECK(own == 7);
    own = seed;
    region(seed, seed % 5 ? 4000 : 3 << 20);
    CHECK(own == seed);
    if (seed % 2) pthread_exit(argument);
    return argument;
}

static void *small(void *argument) {
    char *block = malloc(300 << 10);
    memset(block, 1, 300 << 10);
    long sum = 0;
    for (int i = 0; i < 300 << 10; i += 1024) sum += block[i];
    free(block);
    CHECK(sum == 300);
    return argument;
}

static int number(void *argument) {
    region(*(int *)argument, 8000);
    return 40 + *(int *)argument;
}

static int left;
static void *leaving(void *argument) {
    region((int)(long)argument, 1 << 20);
    __atomic_sub_fetch(&left, 1, __ATOMIC_SEQ_CST);
    return NULL;
}

int main(void) {
    for (int round = 0; round < 6; round++) {
        pthread_t threads[5];
        for (long t = 0; t < 5; t++) pthread_create(&threads[t], NULL, work, (void *)(t + 5 * round + 1));
        if (round % 2) region(99, 2 << 20);
        for (long t = 0; t < 5; t++) {
            void *result;
            CHECK(pthread_join(threads[t], &result) == 0 && result == (void *)(t + 5 * round + 1));
        }
    }
    // Many threads run, a few at once.
    for (int round = 0; round < 400; round++) {
        pthread_t threads[4];
        for (long t = 0; t < 4; t++) CHECK(pthread_create(&threads[t], NULL, small, NULL) == 0);
        for (long t = 0; t < 4; t++) CHECK(pthread_join(threads[t], NULL) == 0);
    }
    // These threads run on stacks that the program brings: a large block, which is paged, and a global.
    static char global[256 << 10] __attribute__((aligned(64)));
    size_t bytes = 8 << 20;
    char *block = malloc(bytes);
    for (int way = 0; way < 2; way++) {
        pthread_attr_t attributes;
        pthread_t thread;
        pthread_attr_init(&attributes);
        pthread_attr_setstack(&attributes, way ? global : block, way ? sizeof global : bytes);
        CHECK(pthread_create(&thread, &attributes, work, (void *)(long)(20 + way)) == 0);
        region(30, 3 << 20);
        CHECK(pthread_join(thread, NULL) == 0);
        pthread_attr_destroy(&attributes);
    }
    free(block);
    // These are C11's threads.
    int argument = 2, result = 0;
    thrd_t c11;
    CHECK(thrd_create(&c11, number, &argument) == thrd_success);
    CHECK(thrd_join(c11, &result) == thrd_success && result == 42);
    // These threads are detached, by attribute and later.
    left = 20;
    for (long t = 0; t < 20; t++) {
        pthread_attr_t attributes;
        pthread_t thread;
        pthread_attr_init(&attributes);
        if (t % 2) pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
        CHECK(pthread_create(&thread, &attributes, leaving, (void *)(t + 1)) == 0);
        if (t % 2 == 0) CHECK(pthread_detach(thread) == 0);
        pthread_attr_destroy(&attributes);
        if (t % 4 == 3) region(50, 1 << 20);
    }
    while (__atomic_load_n(&left, __ATOMIC_SEQ_CST)) usleep(1000);
    return verdict();
}
