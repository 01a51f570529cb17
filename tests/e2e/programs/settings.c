/* getenv and setenv between regions; locale, time zone, errno, rand: libc state that workers see or have of their own. */
#define _GNU_SOURCE
#include "e2e.h"
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

int main(void) {
#pragma omp parallel
    CHECK(getenv("E2E_ABSENT") == NULL);
    setenv("E2E_SET", "between regions", 1);
#pragma omp parallel
    {
        const char *value = getenv("E2E_SET");
        CHECK(value && !strcmp(value, "between regions"));
    }
    char text[64];
    for (int i = 0; i < 50; i++) {
        snprintf(text, sizeof text, "value %d", i);
        setenv("E2E_SET", text, 1);
#pragma omp parallel
        CHECK(getenv("E2E_SET") && !strcmp(getenv("E2E_SET"), text));
    }
    unsetenv("E2E_SET");
#pragma omp parallel
    CHECK(getenv("E2E_SET") == NULL);
    CHECK(getenv("LD_PRELOAD") == NULL); /* the program sees its own environment */
#pragma omp parallel
    {
        errno = 0;
        CHECK(open("/nowhere/at/all", O_RDONLY) == -1 && errno == ENOENT);
        errno = omp_get_thread_num();
#pragma omp barrier
        CHECK(errno == omp_get_thread_num());
    }
    /* a descriptor opened in a worker is everybody's, and the working directory is one */
    static int fd;
#pragma omp parallel
    {
        if (omp_get_thread_num() == omp_get_num_threads() - 1) fd = open("/dev/zero", O_RDONLY);
#pragma omp barrier
        char c = 1;
        CHECK(read(fd, &c, 1) == 1 && c == 0);
#pragma omp barrier
        if (omp_get_thread_num() == omp_get_num_threads() - 1) CHECK(chdir("/proc") == 0);
#pragma omp barrier
        CHECK(getcwd(NULL, 0) && !strcmp(getcwd(NULL, 0), "/proc"));
    }
    CHECK(close(fd) == 0);
    /* getpid is one for all, as of threads */
    static pid_t master;
    master = getpid();
#pragma omp parallel
    CHECK(getpid() == master);
    /* rand's state is one for all */
    srand(5);
    int first = rand();
    srand(5);
    int again = 0;
#pragma omp parallel
#pragma omp single
    again = rand();
    CHECK(first == again);
    return verdict();
}
