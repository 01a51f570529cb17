// Programs that are hard on a profiler. ARGV[1] says which, and ARGV[2] is a number N.
//   maps     makes N mappings, none beside another of its kind, and writes all of them again and again
//   threads  runs N threads at once, each with a block of its own
//   reuse    maps, writes and unmaps memory again and again, at one address
//   nothing  ends at once
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096, BLOCK = 1 << 17 };

static pthread_barrier_t all_there;

static void *mapped(void *at, size_t bytes, int flags)
{
    void *block = mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    if (block == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    return block;
}

static void *work(void *of)
{
    (void)of;
    pthread_barrier_wait(&all_there);
    volatile char *block = malloc(BLOCK);
    for (int round = 0; round < 40; round++)
        for (int i = 0; i < BLOCK; i += 8) block[i]++;
    free((void *)block);
    return NULL;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "nothing";
    int n = argc > 2 ? atoi(argv[2]) : 1;
    unsigned long sum = 0;
    if (strcmp(what, "maps") == 0) {
        // Every other page is unmapped, so that no two mappings can become one.
        char *first = mapped(NULL, (size_t)n * 2 * PAGE, 0);
        for (int i = 0; i < n; i++) munmap(first + (size_t)(2 * i + 1) * PAGE, PAGE);
        for (int round = 0; round < 2000; round++)
            for (int i = 0; i < n; i++) sum += first[(size_t)(2 * i) * PAGE]++;
    } else if (strcmp(what, "threads") == 0) {
        pthread_t *thread = malloc((size_t)n * sizeof *thread);
        pthread_barrier_init(&all_there, NULL, (unsigned)n);
        for (int i = 0; i < n; i++)
            if (pthread_create(&thread[i], NULL, work, NULL) != 0) return 1;
        for (int i = 0; i < n; i++) pthread_join(thread[i], NULL);
    } else if (strcmp(what, "reuse") == 0) {
        char *at = mapped(NULL, 1 << 20, 0);
        munmap(at, 1 << 20);
        for (int round = 0; round < n; round++) {
            volatile char *block = mapped(at, 1 << 20, MAP_FIXED);
            for (int i = 0; i < 1 << 20; i += 8) block[i]++, sum += block[i];
            munmap((void *)block, 1 << 20);
        }
    }
    printf("%lu\n", sum & 1);
    return 0;
}
