/* A thread's stack grows, step by step, while nothing else is touched. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BLOCK = 64 << 20, STEP = 1 << 20, STEPS = 40 };

static int deeper(int steps) {
    char here[STEP];
    memset(here, steps, STEP);
    __asm__ volatile("" : : "r"(here) : "memory");
    usleep(20000);
    int below = steps > 1 ? deeper(steps - 1) : 0;
    return below + here[STEP / 2];
}

static void *thread(void *sum) {
    *(int *)sum = deeper(STEPS);
    return NULL;
}

int main(void) {
    char *block = malloc(BLOCK);
    memset(block, 1, BLOCK);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, (STEPS + 4) * (size_t)STEP);
    pthread_t made;
    int sum = 0;
    pthread_create(&made, &attributes, thread, &sum);
    pthread_join(made, NULL);
    int wrong = 0;
    for (size_t i = 0; i < BLOCK; i++)
        wrong += block[i] != 1;
    printf("sum %d, wrong %d\n", sum, wrong);
    return wrong != 0;
}
