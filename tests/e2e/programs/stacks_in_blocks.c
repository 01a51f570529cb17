/* Without OpenMP: threads on stacks that the program allocates itself, each of which goes over its own part of memory again and again. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { THREADS = 4, BYTES = 24 << 20, STACK = 1 << 20 };

static void *work(void *argument) {
    uint64_t *words = malloc(BYTES), sum = 0;
    for (size_t i = 0; i < BYTES / 8; i++)
        words[i] = i * 2654435761u + (uintptr_t)argument;
    for (int round = 0; round < 8; round++)
        for (size_t i = 0; i < BYTES / 8; i++)
            sum = sum * 31 + words[i];
    free(words);
    return (void *)(uintptr_t)sum;
}

int main(void) {
    char *much = malloc(2 * BYTES);
    for (size_t i = 0; i < 2 * BYTES; i += 4096)
        much[i] = 1;
    pthread_t made[THREADS];
    uint64_t sum = 0;
    for (int t = 0; t < THREADS; t++) {
        pthread_attr_t attributes;
        pthread_attr_init(&attributes);
        pthread_attr_setstack(&attributes, aligned_alloc(4096, STACK), STACK);
        pthread_create(&made[t], &attributes, work, (void *)(uintptr_t)t);
    }
    for (int t = 0; t < THREADS; t++) {
        void *result;
        pthread_join(made[t], &result);
        sum += (uintptr_t)result;
    }
    printf("%lx\n", (unsigned long)sum);
    return 0;
}
