/* system, popen, posix_spawn: the children run without atoll. */
#define _GNU_SOURCE
#include "e2e.h"
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
extern char **environ;

int main(void) {
    uint64_t *big = malloc(24 << 20);
#pragma omp parallel for
    for (int i = 0; i < 3 << 20; i++) big[i] = mix((uint64_t)i);
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("system %d\n", system("echo in system preload=${LD_PRELOAD:-none}; exit 3") >> 8);
    FILE *p = popen("echo one; echo two; echo preload=${LD_PRELOAD:-none}", "r");
    char line[200];
    while (p && fgets(line, sizeof line, p)) printf("popen: %s", line);
    printf("pclose %d\n", p ? pclose(p) : -1);
    fflush(stdout);
    p = popen("cat; exit 4", "w");
    if (p) fprintf(p, "to a child\n");
    printf("pclose %d\n", p ? pclose(p) >> 8 : -1);
    fflush(stdout);
    pid_t pid;
    char *const arguments[] = {"sh", "-c", "echo spawned ${LD_PRELOAD:-none} ${ATOLL_CONTROL:-none}; exit 5", NULL};
    int status = 0;
    CHECK(posix_spawn(&pid, "/bin/sh", NULL, NULL, arguments, environ) == 0);
    CHECK(waitpid(pid, &status, 0) == pid);
    printf("spawn %d\n", WEXITSTATUS(status));
    int n = 0;
#pragma omp parallel
#pragma omp single
    n = system("exit 6") >> 8; /* from whichever worker */
    printf("in a region %d\n", n);
    int children = waitpid(-1, &status, WNOHANG); /* workers are no children of the program, as far as it can see */
    printf("other children %s\n", children > 0 ? "yes" : "no");
    long bad = 0;
#pragma omp parallel for reduction(+ : bad)
    for (int i = 0; i < 3 << 20; i++) bad += big[i] != mix((uint64_t)i);
    CHECK(bad == 0);
    return verdict();
}
