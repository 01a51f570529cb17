/* exec: a wrong name leaves the program alone, a right one replaces it, library gone, signals as they were. */
#include "check.h"
#include <pthread.h>
int main(void)
{
    char *p = malloc(LARGE);
    strcpy(p, "/not/there");
    push_out();
    char *argv[] = {p, 0};
    CHECK(execv(p, argv) == -1 && errno == ENOENT);
    CHECK(execvp("not-there-either", argv) == -1 && errno == ENOENT);
    CHECK(execl("/etc/passwd", "passwd", (char *)0) == -1 && errno == EACCES);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, 0);
    strcpy(p + 5000000, "test -z \"$LD_PRELOAD\" && grep -q 'SigBlk:.*2..$' /proc/self/status && "
                        "test $(grep -c libatoll /proc/self/maps) = 0 && echo good; exit 5");
    push_out();
    execlp("sh", "sh", "-c", p + 5000000, (char *)0);
    return 1;
}
