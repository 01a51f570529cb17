/* exec: a wrong name leaves the program alone, a right one replaces it, library gone, signals as they were. */
#include "check.h"
int main(int argc, char **argv)
{
    sigset_t set;
    if (argc > 1) {
        CHECK(argc == 3 && !strcmp(argv[1], "after") && !strcmp(argv[2], "all") && !strcmp(getenv("KEPT"), "yes"));
        CHECK(sigprocmask(SIG_BLOCK, 0, &set) == 0 && sigismember(&set, SIGUSR1) && !sigismember(&set, SIGUSR2));
        CHECK(!getenv("LD_PRELOAD") && system("test $(grep -c libatoll /proc/$PPID/maps) = 0") == 0);
        puts("good");
        return 5;
    }
    char *p = malloc(LARGE);
    strcpy(p, "/not/there");
    push_out();
    char *list[] = {p, 0};
    CHECK(execv(p, list) == -1 && errno == ENOENT);
    CHECK(execvp("not-there-either", list) == -1 && errno == ENOENT);
    CHECK(execl("/etc/passwd", "passwd", (char *)0) == -1 && errno == EACCES);
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, 0);
    setenv("KEPT", "yes", 1);
    strcpy(p + 5000000, argv[0]);
    strcpy(p + 6000000, "after");
    push_out();
    execlp(p + 5000000, p + 5000000, p + 6000000, "all", (char *)0);
    return 1;
}
