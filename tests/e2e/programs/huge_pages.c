// Memory that is walked through again and again, so that it comes and leaves in huge pages, while all is done to it that needs a part of a huge page
// alone: it is freed and allocated anew, given back, visited by chance, read from files and written to them, protected, forked. Every
// word is known at any time. ARGV[1]: rounds; ARGV[2]: a seed; ARGV[3], if there: no forks, which need as much
// memory again.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BLOCKS = 6, WORDS = (17 << 20) / 8, GLOBAL = (24 << 20) / 8 };

static uint64_t global[GLOBAL];
static uint64_t *blocks[BLOCKS];
static uint64_t stamps[BLOCKS];
static uint64_t state;

static uint64_t chance(uint64_t below)
{
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state % below;
}

static void fail(const char *what, size_t at)
{
    printf("%s: word %zu is wrong\n", what, at);
    fflush(stdout);
    _exit(1);
}

static void check(const char *what, const uint64_t *words, size_t count, uint64_t stamp)
{
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < count; i++)
        if (words[i] != (stamp ? stamp * 1000003 + i : 0)) fail(what, i);
}

static void fill(uint64_t *words, size_t count, uint64_t stamp)
{
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < count; i++) words[i] = stamp * 1000003 + i;
}

static void renew(int b, uint64_t stamp)
{
    free(blocks[b]);
    blocks[b] = chance(2) ? calloc(WORDS, 8) : NULL;
    if (blocks[b]) check("calloc", blocks[b], WORDS, 0);
    else blocks[b] = malloc(WORDS * 8ul);
    fill(blocks[b], WORDS, stamps[b] = stamp);
}

/* Gives a part back, which reads as zeros then, and writes it again. */
static void give_back(int b)
{
    size_t first = chance(WORDS / 2) & ~511ul, count = (chance(WORDS / 2 - 1024) & ~511ul) + 512;
    uint64_t *at = (uint64_t *)(((uintptr_t)(blocks[b] + first) + 4095) & ~4095ul);
    if (madvise(at, count * 8, MADV_DONTNEED)) perror("madvise"), exit(1);
    check("madvise", at, count, 0);
    for (size_t i = 0; i < count; i++) at[i] = stamps[b] * 1000003 + (at - blocks[b]) + i;
}

static void through_a_file(int b, int file)
{
    size_t first = chance(WORDS - 300000), count = 1 + chance(300000);
    if (pwrite(file, blocks[b] + first, count * 8, 0) != (ssize_t)count * 8) perror("pwrite"), exit(1);
    memset(blocks[b] + first, 0x5a, count * 8);
    if (pread(file, blocks[b] + first, count * 8, 0) != (ssize_t)count * 8) perror("pread"), exit(1);
}

static void in_a_child(void)
{
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        // No threads: the child has but this one.
        for (size_t i = 0; i < GLOBAL; i += 97)
            if (global[i] != stamps[0] * 1000003 + i) fail("child", i);
        for (int b = 0; b < BLOCKS; b++)
            for (size_t i = b; i < WORDS; i += 509)
                if (blocks[b][i] != stamps[b] * 1000003 + i) fail("child's block", i);
        blocks[1][5] = 0;
        _exit(0);
    }
    int status;
    if (waitpid(child, &status, 0) != child || status) fail("the child", status);
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 10, file = open("/tmp", O_TMPFILE | O_RDWR, 0600);
    state = 88172645463325252ull + (argc > 2 ? strtoull(argv[2], 0, 10) : 0);
    for (int b = 0; b < BLOCKS; b++) renew(b, b + 1);
    fill(global, GLOBAL, stamps[0]);
    for (int round = 0; round < rounds; round++) {
        for (int walk = 0; walk < 3; walk++) {
            for (int b = 0; b < BLOCKS; b++) check("walk", blocks[b], WORDS, stamps[b]);
            check("global", global, GLOBAL, stamps[0]);
        }
        int b = 1 + chance(BLOCKS - 1);
        switch (chance(argc > 3 ? 5 : 6)) {
        case 0: renew(b, 100 + round); break;
        case 1: give_back(b); break;
        case 2: through_a_file(b, file); break;
        case 3:
            for (int i = 0; i < 20000; i++) {
                size_t at = chance(WORDS);
                if (blocks[b][at]++ != stamps[b] * 1000003 + at) fail("visit", at);
                blocks[b][at]--;
            }
            break;
        case 4: {
            char *at = (char *)(((uintptr_t)(blocks[b] + chance(WORDS / 2)) + 4095) & ~4095ul);
            if (mprotect(at, 65536, PROT_READ) || mprotect(at, 65536, PROT_READ | PROT_WRITE)) perror("mprotect"), exit(1);
            break;
        }
        default: in_a_child();
        }
    }
    puts("all words are right");
    return 0;
}
