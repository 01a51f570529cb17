#include "check.h"
int main(void)
{
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    CHECK(pid < 0 ? errno == EAGAIN : wait(0) == pid);
    if (pid < 0)
        CHECK(fork() < 0);
    puts(pid < 0 ? "refused" : "good");
}
