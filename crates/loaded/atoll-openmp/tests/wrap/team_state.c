/* State of libc that threads share: random numbers, the environment, files and directories, mappings. */
#include "check.h"
#include <omp.h>
#include <sys/mman.h>
#include <unistd.h>
int main(void)
{
    srand(5);
    long sum = 0, expected = 0, xors = 0, expected_xors = 0;
    for (int i = 0; i < 4000; i++) {
        int r = rand();
        expected += r, expected_xors ^= (long)r << (r % 7);
    }
    srand(5);
#pragma omp parallel num_threads(4) reduction(+ : sum) reduction(^ : xors)
    for (int i = 0; i < 1000; i++) {
        int r = rand();
        sum += r, xors ^= (long)r << (r % 7);
    }
    CHECK(sum == expected && xors == expected_xors);
    srand48(9);
    double first = drand48(), second = drand48(), seen[2] = {0};
    srand48(9);
#pragma omp parallel num_threads(2)
    {
        int me = omp_get_thread_num();
        if (me == 0)
            seen[0] = drand48();
#pragma omp barrier
        if (me == 1)
            seen[1] = drand48();
    }
    CHECK(seen[0] == first && seen[1] == second);
    mkdir("inside", 0700);
    char *mapped = 0, *own = 0;
    int fd = -1;
#pragma omp parallel num_threads(4)
    {
        int me = omp_get_thread_num();
        if (me == 2) {
            CHECK(setenv("BY_TWO", "yes", 1) == 0);
            CHECK(chdir("inside") == 0);
            fd = open("file", O_RDWR | O_CREAT, 0600);
            CHECK(write(fd, "mapped", 7) == 7 && ftruncate(fd, 8192) == 0);
            mapped = mmap(0, 8192, PROT_READ, MAP_SHARED, fd, 0);
            CHECK(mapped != MAP_FAILED);
            own = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
            CHECK(own != MAP_FAILED && !strcmp(own, "mapped"));
            strcpy(own, "changed");
            close(fd);
        }
#pragma omp barrier
        CHECK(!strcmp(getenv("BY_TWO"), "yes"));
        CHECK(!strcmp(own, "changed"));
        CHECK(access("file", R_OK) == 0);
#pragma omp barrier
        if (me == 3)
            CHECK(unsetenv("BY_TWO") == 0);
#pragma omp barrier
        CHECK(!getenv("BY_TWO"));
    }
    CHECK(!strcmp(mapped, "mapped") && munmap(own, 8192) == 0);
#pragma omp parallel num_threads(4)
    CHECK(!strcmp(mapped, "mapped"));
#pragma omp parallel num_threads(4)
    if (omp_get_thread_num() == 1)
        CHECK(munmap(mapped, 8192) == 0);
    int children = 0;
#pragma omp parallel num_threads(4) reduction(+ : children)
    children += system("exit 3") == 3 << 8;
    CHECK(children == 4);
    CHECK(wait(0) == -1 && errno == ECHILD);
    puts("good");
}
