/* Sets up a ring of io_uring, by the system call's number or, with -DLINKED, by liburing, and says what came of it; then copies an array to a file and
 * back by ordinary calls. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { N = 3 << 20 };

#ifdef LINKED
int io_uring_queue_init(unsigned, void *, unsigned);

static int set_up(void) {
    static char ring[4096];
    return io_uring_queue_init(8, ring, 0);
}
#else
static int set_up(void) {
    static char parameters[4096];
    return syscall(SYS_io_uring_setup, 8, parameters) < 0 ? -errno : 0;
}
#endif

int main(void) {
    uint64_t *given = malloc(N * 8), *taken = calloc(N, 8);
    for (size_t i = 0; i < N; i++)
        given[i] = i * 3 + 1;
    int ring = set_up();
    fprintf(stderr, "ring %d\n", ring);
    FILE *file = tmpfile();
    size_t wrong = fwrite(given, 8, N, file) != N;
    rewind(file);
    wrong += fread(taken, 8, N, file) != N;
    for (size_t i = 0; i < N; i++)
        wrong += taken[i] != given[i];
    printf("wrong %zu\n", wrong);
    return wrong != 0;
}
