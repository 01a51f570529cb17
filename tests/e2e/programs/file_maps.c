/* Workers map files of their own at the same time, and read each other's in the next region. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { FILES = 24, PAGES = 40, WORDS = PAGES * 512 };

int main(void) {
    const long *maps[FILES];
    long *table = malloc(8 << 20);
    int wrong = 0;
    for (int round = 0; round < 5; round++) {
#pragma omp parallel for schedule(dynamic, 1) reduction(+ : wrong)
        for (int f = 0; f < FILES; f++) {
            char name[100];
            snprintf(name, sizeof name, "file_maps.%d", f);
            int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
            long *words = malloc(WORDS * sizeof *words);
            for (int i = 0; i < WORDS; i++) words[i] = f * 1000003L + i * 7 + round;
            wrong += write(fd, words, WORDS * sizeof *words) != (ssize_t)(WORDS * sizeof *words);
            free(words);
            maps[f] = mmap(NULL, WORDS * sizeof **maps, PROT_READ, MAP_SHARED, fd, 0);
            wrong += maps[f] == MAP_FAILED;
            close(fd);
        }
        /* Evictions in between use what a worker has mapped for itself. */
#pragma omp parallel for
        for (int i = 0; i < 1 << 20; i++) table[i] = i ^ round;
#pragma omp parallel for schedule(dynamic, 1) reduction(+ : wrong)
        for (int f = FILES - 1; f >= 0; f--)
            for (int i = 0; i < WORDS; i++) wrong += maps[f][i] != f * 1000003L + i * 7 + round;
        for (int i = 0; i < 1 << 20; i += 64) wrong += table[i] != (i ^ round);
        for (int f = 0; f < FILES; f++) munmap((void *)maps[f], WORDS * sizeof **maps);
    }
    for (int f = 0; f < FILES; f++) {
        char name[100];
        snprintf(name, sizeof name, "file_maps.%d", f);
        unlink(name);
    }
    printf("%d wrong\n", wrong);
    return wrong != 0;
}
