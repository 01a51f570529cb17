/* fork: refused with a clear message, or right; never wrong data. */
#include "e2e.h"
#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void) {
    uint64_t *big = malloc(24 << 20);
#pragma omp parallel for
    for (int i = 0; i < 3 << 20; i++) big[i] = mix((uint64_t)i);
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        for (int i = 0; i < 3 << 20; i++)
            if (big[i] != mix((uint64_t)i)) _exit(1);
        big[5] = 0;
        _exit(0);
    }
    if (pid < 0) {
        fprintf(stderr, "fork: %s\n", strerror(errno));
        return 3;
    }
    int status;
    waitpid(pid, &status, 0);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(big[5] == mix(5));
    return verdict();
}
