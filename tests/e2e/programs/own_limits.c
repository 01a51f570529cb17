/* Limits its own address space and the size of its files, as programs with an option for the memory they may take do, before it needs memory if
 * it has an argument. Then it computes, maps a file and looks its limits up. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define BYTES ((size_t)40 << 20)

static void show(const char *what, int resource) {
    struct rlimit limit;
    if (getrlimit(resource, &limit) != 0) perror("getrlimit");
    printf("%s %llu %llu\n", what, (unsigned long long)limit.rlim_cur, (unsigned long long)limit.rlim_max);
}

static unsigned char *make(void) {
    unsigned char *block = malloc(BYTES);
    if (!block) {
        perror("malloc");
        exit(1);
    }
    return memset(block, 1, BYTES);
}

int main(int count, char **words) {
    (void)words;
    unsigned char *first = count > 1 ? NULL : make();
    struct rlimit *limit = malloc(sizeof *limit), before, wrong = {2, 1};
    *limit = (struct rlimit){(rlim_t)2 << 30, (rlim_t)3 << 30};
    if (setrlimit(RLIMIT_AS, limit) != 0) perror("setrlimit");
    limit->rlim_cur = (rlim_t)1 << 30;
    if (prlimit(0, RLIMIT_AS, limit, &before) != 0) perror("prlimit");
    printf("before %llu\n", (unsigned long long)before.rlim_cur);
    *limit = (struct rlimit){(rlim_t)64 << 20, (rlim_t)128 << 20};
    if (setrlimit(RLIMIT_FSIZE, limit) != 0) perror("setrlimit");
    printf("wrong %d\n", setrlimit(RLIMIT_AS, &wrong) == -1 && errno == EINVAL);
    if (!first) first = make();
    show("addresses", RLIMIT_AS);
    show("files", RLIMIT_FSIZE);

    char name[] = "/tmp/own-limits-XXXXXX";
    int file = mkstemp(name);
    unlink(name);
    if (write(file, first, 1 << 20) != 1 << 20) perror("write");
    void *mapped = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    printf("mapped %d\n", mapped != MAP_FAILED);
    unsigned char *second = malloc(BYTES), *third = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    printf("memory %d\n", second && third != MAP_FAILED);
    if (!second || third == MAP_FAILED) return 1;
    unsigned long sum = 0;
    for (int round = 0; round < 3; round++) {
#pragma omp parallel for reduction(+ : sum)
        for (size_t i = 0; i < BYTES; i += 64) {
            second[i] = (unsigned char)(first[i] + i / 64 + round);
            third[i] = second[i] ^ 0x55;
            sum += second[i] + third[i];
        }
    }
    printf("sum %lu\n", sum);
    return 0;
}
