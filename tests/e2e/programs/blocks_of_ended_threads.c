/* Without OpenMP: threads that end leave small blocks behind, most of which are freed; a library that is loaded late unmaps memory at
 * the end of the process. Its path is the argument. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 40, BLOCKS = 20000, BYTES = 60 << 20 };

static char *blocks[THREADS][BLOCKS];

static void *work(void *argument) {
    char **mine = argument;
    for (int i = 0; i < BLOCKS; i++) {
        mine[i] = malloc(100 + i % 200);
        memset(mine[i], i, 100);
    }
    for (int i = 0; i < BLOCKS; i++)
        if (i % 10) {
            free(mine[i]);
            mine[i] = NULL;
        }
    return NULL;
}

int main(int argc, char **argv) {
    if (argc < 2)
        return 2;
    char *much = malloc(BYTES);
    memset(much, 1, BYTES);
    for (int t = 0; t < THREADS; t += 4) {
        pthread_t made[4];
        for (int i = 0; i < 4; i++)
            pthread_create(&made[i], NULL, work, blocks[t + i]);
        for (int i = 0; i < 4; i++)
            pthread_join(made[i], NULL);
    }
    void *library = dlopen(argv[1], RTLD_NOW);
    int (*map_them)(void) = library ? (int (*)(void))dlsym(library, "map_them") : NULL;
    if (!map_them)
        return 3;
    long sum = map_them();
    for (int i = 0; i < BYTES; i += 4096)
        sum += much[i];
    for (int t = 0; t < THREADS; t++)
        for (int i = 0; i < BLOCKS; i += 10)
            sum += blocks[t][i][50];
    printf("%ld\n", sum);
    return 0;
}
