/* posix_spawn, system and popen, whose arguments lie in paged memory; children run without the library. */
#include "check.h"
#include <spawn.h>
extern char **environ;
int main(void)
{
    char *p = malloc(LARGE);
    memset(p, 0, LARGE);
    CHECK(wait(0) == -1 && errno == ECHILD);
    strcpy(p + 100, "test -z \"$LD_PRELOAD\" && test -z \"$ATOLL_CONTROL_FD\" && test $(cat /proc/self/maps | grep -c libatoll) = 0");
    push_out();
    CHECK(system(p + 100) == 0);
    CHECK(system("exit 7") == 7 << 8);
    strcpy(p + 5000000, "echo from popen; env | grep -c PRELOAD");
    push_out();
    FILE *f = popen(p + 5000000, "r");
    char line[100];
    CHECK(f && fgets(line, 100, f) && !strcmp(line, "from popen\n"));
    CHECK(fgets(line, 100, f) && !strcmp(line, "0\n"));
    CHECK(pclose(f) == 1 << 8);
    f = popen("cat > catted", "w");
    CHECK(f && fprintf(f, "to popen\n") == 9 && pclose(f) == 0);
    CHECK(system("grep -q '^to popen$' catted") == 0);
    char **argv = (void *)(p + 7000000);
    argv[0] = strcpy(p + 8000000, "sh");
    argv[1] = strcpy(p + 9000000, "-c");
    argv[2] = strcpy(p + 10000000, "test \"$IN_PAGED\" = yes && exit 9");
    char **env = (void *)(p + 11000000);
    env[0] = strcpy(p + 12000000, "IN_PAGED=yes");
    strcpy(p + 13000000, "/bin/sh");
    push_out();
    pid_t pid;
    CHECK(posix_spawn(&pid, p + 13000000, 0, 0, argv, env) == 0);
    int *status = (int *)(p + 14000000);
    push_out();
    CHECK(waitpid(pid, status, 0) == pid && WIFEXITED(*status) && WEXITSTATUS(*status) == 9);
    setenv("IN_PAGED", "yes", 1);
    push_out();
    CHECK(posix_spawnp(&pid, p + 8000000, 0, 0, argv, environ) == 0);
    CHECK(waitpid(pid, status, 0) == pid && WEXITSTATUS(*status) == 9);
    CHECK(posix_spawn(&pid, "/not/there", 0, 0, argv, env) == ENOENT);
    /* vfork and exec, and its failure. */
    push_out();
    if ((pid = vfork()) == 0) {
        execve(p + 13000000, argv, env);
        _exit(1);
    }
    CHECK(pid > 0 && waitpid(pid, status, 0) == pid && WEXITSTATUS(*status) == 9);
    if ((pid = vfork()) == 0) {
        execl("/not/there", "there", (char *)0);
        _exit(3);
    }
    CHECK(pid > 0 && waitpid(pid, status, 0) == pid && WEXITSTATUS(*status) == 3);
    for (size_t i = 20000000; i < LARGE; i += 4096)
        p[i] = 1;
    CHECK(wait(0) == -1 && errno == ECHILD);
    puts("good");
}
