/* Keeps 64 MiB in mappings of 16 KiB, as interpreters with allocators of their own do: each is the second half of a mapping of 32 KiB, is
 * written, has a page protected for a while, and is read again. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { MAPPINGS = 4096, WORDS = 16384 / 8, HALF = 16384 };

static uint64_t *mappings[MAPPINGS];

int main(void) {
    for (int i = 0; i < MAPPINGS; i++) {
        char *both = mmap(NULL, 2 * HALF, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (both == MAP_FAILED || munmap(both, HALF) != 0) {
            perror("mmap");
            return 1;
        }
        mappings[i] = (uint64_t *)(both + HALF);
        for (int k = 0; k < WORDS; k++) {
            if (mappings[i][k] != 0) {
                printf("mapping %d has %lx at %d\n", i, (unsigned long)mappings[i][k], k);
                return 1;
            }
            mappings[i][k] = (uint64_t)i * WORDS + k;
        }
    }
    for (int i = 0; i < MAPPINGS; i += 512) {
        if (mprotect(mappings[i], 4096, PROT_READ) != 0 || mprotect(mappings[i], 4096, PROT_READ | PROT_WRITE) != 0) {
            perror("mprotect");
            return 1;
        }
    }
    uint64_t sum = 0;
    for (int round = 0; round < 3; round++)
        for (int i = 0; i < MAPPINGS; i++)
            for (int k = round; k < WORDS; k += 3)
                sum = sum * 31 + mappings[i][k]++;
    for (int i = 0; i < MAPPINGS; i += 2)
        munmap(mappings[i], HALF);
    printf("%lx\n", (unsigned long)sum);
    return 0;
}
