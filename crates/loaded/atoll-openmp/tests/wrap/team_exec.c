/* exec in a worker replaces the program. */
#include "check.h"
#include <omp.h>
int main(int argc, char **argv)
{
    if (argc > 1) {
        CHECK(wait(0) == -1 && errno == ECHILD);
        puts("good");
        return 6;
    }
#pragma omp parallel num_threads(4)
    {
        if (omp_get_thread_num() == 2) {
            usleep(20000);
            CHECK(execl("/not/there", "there", (char *)0) == -1 && errno == ENOENT);
            execl(argv[0], argv[0], "after", (char *)0);
        }
        for (;;)
            usleep(1000);
    }
}
