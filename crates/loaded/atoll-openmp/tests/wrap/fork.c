#include "check.h"
int main(void)
{
    pid_t pid = fork();
    if (pid == 0)
        _exit(3);
    int status = 0;
    CHECK(pid > 0 && wait(&status) == pid && WEXITSTATUS(status) == 3);
    puts("good");
}
