/* With two words: preloads the library in the second one into this program, which it executes in the way of the first. Without: says what it
 * has in LD_PRELOAD, and sums up more than near memory. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { N = 24 << 20 };

static int sum(void) {
    volatile unsigned char *big = malloc(N);
    uint64_t sum = 0;
    for (size_t i = 0; i < N; i++)
        big[i] = (unsigned char)(i * 7 + i / 4096);
    for (size_t i = 0; i < N; i++)
        sum += big[i];
    char *preloaded = getenv("LD_PRELOAD");
    preloaded = preloaded ? strstr(preloaded, "libm.so.6") : "none";
    printf("%s, sum %llu\n", preloaded ? preloaded : "others", (unsigned long long)sum);
    return 0;
}

int main(int argc, char **argv) {
    if (argc < 3)
        return sum();
    char *own = argv[0], *words[] = {own, NULL};
    setenv("LD_PRELOAD", argv[2], 1);
    if (!strcmp(argv[1], "execv"))
        execv(own, words);
    if (!strcmp(argv[1], "execlp"))
        execlp(own, own, (char *)NULL);
    if (!strcmp(argv[1], "fexecve"))
        fexecve(open(own, O_RDONLY), words, environ);
    pid_t pid = 0;
    int status = 1;
    if (!strcmp(argv[1], "vfork") && (pid = vfork()) == 0) {
        execve(own, words, environ);
        _exit(1);
    }
    if (!strcmp(argv[1], "spawn") && posix_spawn(&pid, own, NULL, NULL, words, environ) != 0)
        return 2;
    waitpid(pid, &status, 0);
    return status != 0;
}
