/* Threads on segmentation cores: made, joined, with data of their own, locks and conditions. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static long sum;
static int turn;
static __thread long own = 5;

static void *add(void *n) {
    for (int i = 0; i < 2000; i++) {
        pthread_mutex_lock(&lock);
        sum++;
        pthread_mutex_unlock(&lock);
        own++;
    }
    pthread_mutex_lock(&lock);
    while (turn != (int)(long)n) pthread_cond_wait(&changed, &lock);
    turn++;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    char *block = malloc(100000);
    if (!block) return NULL;
    block[99999] = 1;
    free(block);
    return (void *)own;
}

int main(void) {
    for (int round = 0; round < 3; round++) {
        pthread_t t[4];
        turn = 0;
        for (long i = 0; i < 4; i++)
            if (pthread_create(&t[i], NULL, add, (void *)i)) return puts("no thread"), 1;
        for (int i = 0; i < 4; i++) {
            void *result;
            pthread_join(t[i], &result);
            if ((long)result != 2005) return printf("own %ld\n", (long)result), 1;
        }
    }
    printf("sum %ld, own %ld\n", sum, own);
    return 0;
}
