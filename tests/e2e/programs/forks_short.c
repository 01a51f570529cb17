/* fork where the machine has no memory for a copy: a child that executes another program works; for one that goes on, fork fails. */
#define _GNU_SOURCE
#include "e2e.h"
#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N = 3 << 20 };

int main(void) {
    uint64_t *big = malloc(N * sizeof *big);
#pragma omp parallel for
    for (int i = 0; i < N; i++) big[i] = mix((uint64_t)i);
    pid_t pid = fork();
    if (pid == 0) {
        execlp("sh", "sh", "-c", "exit 4", (char *)0);
        _exit(1);
    }
    int status = -1;
    CHECK(waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 4);
    pid = fork();
    if (pid == 0)
        for (;;) sleep(1);
    CHECK(pid == -1 && errno == ENOMEM);
    CHECK(wait(0) == -1 && errno == ECHILD);
    /* In a region other threads go on, so that everything would have to be copied at once. */
    int refused = 0;
#pragma omp parallel num_threads(2) reduction(+ : refused)
    {
        pid_t other = fork();
        if (other == 0) _exit(1);
        refused += other == -1 && errno == ENOMEM;
    }
    CHECK(refused == 2);
    for (int i = 0; i < N; i++)
        if (big[i] != mix((uint64_t)i)) exit(5);
    return verdict();
}
