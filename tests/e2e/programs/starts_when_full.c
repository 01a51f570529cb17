/* Fills ARGV[1] MiB in a region, waits for a second, and starts the command ARGV[2] in the way that ARGV[3] names, while the memory is in
 * use. Prints the sum of what it filled. */
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static int ended_well(pid_t pid)
{
    int status = 0;
    return waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static int start(const char *command, const char *way)
{
    char *words[] = {"sh", "-c", (char *)command, NULL};
    pid_t pid;
    if (!strcmp(way, "system"))
        return system(command) == 0;
    if (!strcmp(way, "popen")) {
        char line[100];
        FILE *file = popen(command, "r");
        while (file && fgets(line, sizeof line, file))
            ;
        return file && pclose(file) == 0;
    }
    if (!strcmp(way, "spawn"))
        return posix_spawn(&pid, "/bin/sh", NULL, NULL, words, environ) == 0 && ended_well(pid);
    if ((pid = vfork()) == 0) {
        execve("/bin/sh", words, environ);
        _exit(127);
    }
    return pid > 0 && ended_well(pid);
}

int main(int argc, char **argv)
{
    if (argc < 4)
        return 2;
    long count = atol(argv[1]) << 17, sum = 0;
    unsigned long *block = malloc(count * sizeof *block);
#pragma omp parallel for
    for (long i = 0; i < count; i++)
        block[i] = i * 0x9e3779b97f4a7c15;
    sleep(1);
    if (!start(argv[2], argv[3]))
        return 1;
#pragma omp parallel for reduction(+ : sum)
    for (long i = 0; i < count; i++)
        sum += block[i] >> 40;
    printf("%ld\n", sum);
    return 0;
}
