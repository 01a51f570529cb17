/* A program that starts a helper before it needs memory itself, as MPI programs start their daemon: the helper is another program, takes
 * more memory than its parent has so far, and stays until the parent is done. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BLOCK = 256 << 10, OWN = 4 << 20, HELPERS = 16 << 20, DATA = 120 << 20 };

static void take(size_t bytes) {
    for (size_t i = 0; i < bytes; i += BLOCK) memset(malloc(BLOCK), 1, BLOCK);
}

int main(int argc, char **argv) {
    if (argc > 1) {
        take(HELPERS);
        char end;
        if (write(1, "h", 1) != 1) return 1;
        return read(0, &end, 1) < 0;
    }
    int to[2], from[2];
    if (pipe(to) || pipe(from)) return 1;
    take(OWN);
    pid_t helper = fork();
    if (helper == 0) {
        dup2(to[0], 0);
        dup2(from[1], 1);
        close(to[1]);
        close(from[0]);
        execl("/proc/self/exe", argv[0], "helper", (char *)0);
        _exit(1);
    }
    close(to[0]);
    close(from[1]);
    char ready;
    if (read(from[0], &ready, 1) != 1) return 1;
    uint64_t *data = malloc(DATA), sum = 0;
    for (int round = 0; round < 3; round++)
        for (size_t i = 0; i < DATA / 8; i++) sum += data[i] = i + round;
    close(to[1]);
    int status;
    waitpid(helper, &status, 0);
    printf("sum %lu, helper %d\n", sum, status);
}
