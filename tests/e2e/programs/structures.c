/* Strings, structures and the words of locks in paged memory that the kernel reads and writes, for two seconds. ARGV[1]: a
 * directory. */
#define _GNU_SOURCE
#include "e2e.h"
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { PAGES = 4096, PAGE = 4096 };

typedef struct {
    char path[64];
    struct stat found;
    struct rusage used;
    struct timespec wait;
    pthread_mutex_t mutex;
} place;

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    char *memory = malloc((size_t)PAGES * PAGE);
#pragma omp parallel for
    for (long p = 0; p < PAGES; p++) {
        place *at = (place *)(memory + p * PAGE);
        snprintf(at->path, sizeof at->path, "%s", argv[1]);
        at->wait = (struct timespec){0, 1};
        pthread_mutex_init(&at->mutex, NULL);
    }
    struct timespec begin, now;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    long failed = 0, rounds = 0;
    int error = 0;
    do {
#pragma omp parallel for schedule(dynamic, 64) reduction(+ : failed, rounds)
        for (long p = 0; p < PAGES; p++) {
            place *at = (place *)(memory + p * PAGE);
            int wrong = stat(at->path, &at->found) || getrusage(RUSAGE_SELF, &at->used) || access(at->path, F_OK);
            wrong = wrong || (p % 64 == 0 && nanosleep(&at->wait, NULL)) || !S_ISDIR(at->found.st_mode);
            pthread_mutex_t *mutex = &((place *)(memory + p % 2 * PAGE))->mutex;
            wrong = wrong || pthread_mutex_lock(mutex) || (sched_yield(), pthread_mutex_unlock(mutex));
            if (wrong) error = errno;
            failed += wrong;
            rounds++;
        }
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (now.tv_sec - begin.tv_sec < 2);
    if (failed) fprintf(stderr, "%ld of %ld rounds failed, the last with %s\n", failed, rounds, strerror(error));
    CHECK(failed == 0);
    return verdict();
}
