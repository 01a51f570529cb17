/* Threads that allocate small blocks, of which most are far, while libraries with thread-local variables are loaded: ARGV[1...] are their
 * files. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { THREADS = 3, BLOCKS = 60000 };
static int over;

static void *allocate(void *seed) {
    unsigned random = (unsigned)(size_t)seed;
    char **block = calloc(BLOCKS, sizeof *block);
    long wrong = 0;
    while (!__atomic_load_n(&over, __ATOMIC_RELAXED)) {
        for (int turn = 0; turn < 1000; turn++) {
            random = random * 1664525 + 1013904223;
            int i = random / 7 % BLOCKS;
            if (block[i]) {
                wrong += block[i][0] != (char)i || block[i][99] != (char)i;
                free(block[i]);
            }
            size_t bytes = 100 + random % 600;
            block[i] = malloc(bytes);
            memset(block[i], i, bytes);
        }
    }
    for (int i = 0; i < BLOCKS; i++)
        free(block[i]);
    return (void *)wrong;
}

int main(int argc, char **argv) {
    pthread_t thread[THREADS];
    long wrong = 0;
    char *first = malloc(8 << 20);
    memset(first, 1, 8 << 20);
    for (size_t t = 0; t < THREADS; t++)
        pthread_create(&thread[t], NULL, allocate, (void *)(t + 1));
    for (int l = 1; l < argc; l++) {
        struct timespec pause = {0, 20000000};
        nanosleep(&pause, NULL);
        void *library = dlopen(argv[l], RTLD_NOW);
        int *(*of)(void) = library ? (int *(*)(void))dlsym(library, "of_library") : NULL;
        wrong += !of || of()[3] != 0;
    }
    __atomic_store_n(&over, 1, __ATOMIC_RELAXED);
    for (int t = 0; t < THREADS; t++) {
        void *bad;
        pthread_join(thread[t], &bad);
        wrong += (long)bad;
    }
    free(first);
    printf("wrong %ld\n", wrong);
    return wrong != 0;
}
