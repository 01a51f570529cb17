/* Temporary arrays that every step allocates, writes and frees; between them blocks that must read as zeros where freed ones
 * lay: of calloc, of mmap, and what mremap and realloc add. */
#define _GNU_SOURCE
#include "e2e.h"
#include <sys/mman.h>

static int reads_as(const unsigned char *block, size_t bytes, unsigned char what) {
    for (size_t i = 0; i < bytes; i++)
        if (block[i] != what) return 0;
    return 1;
}

/* Blocks of several sizes, none of them a multiple of a page, are written in a region and freed in another order. */
static void step(uint64_t seed) {
    enum { ARRAYS = 6 };
    unsigned char *array[ARRAYS];
    size_t size[ARRAYS];
    for (int k = 0; k < ARRAYS; k++) {
        size[k] = 70000 + mix(seed + (uint64_t)k) % 3000000;
        array[k] = malloc(size[k]);
        CHECK(array[k]);
    }
#pragma omp parallel for schedule(dynamic, 1)
    for (int k = 0; k < ARRAYS; k++) memset(array[k], 0xA0 + k, size[k]);
    for (int k = 0; k < ARRAYS; k++) CHECK(reads_as(array[k], size[k], (unsigned char)(0xA0 + k)));
    for (int k = 0; k < ARRAYS; k++) free(array[(k * 5 + (int)(seed % 6)) % ARRAYS]);
}

int main(int argc, char **argv) {
    int steps = argc > 1 ? atoi(argv[1]) : 12, zeros = argc < 3;
    for (int i = 0; i < steps; i++) {
        step((uint64_t)i);
        if (!zeros) {
            step((uint64_t)0);
            continue;
        }
        size_t bytes = 100000 + mix((uint64_t)i * 77) % 4000000;
        unsigned char *block = calloc(bytes, 1);
        CHECK(block && reads_as(block, bytes, 0));
        memset(block, 0xEE, bytes);
        free(block);
        size_t pages = 4096 * (20 + mix((uint64_t)i * 33) % 500);
        unsigned char *mapping = mmap(NULL, pages, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(mapping != MAP_FAILED && reads_as(mapping, pages, 0));
        memset(mapping, 0xDD, pages);
        mapping = mremap(mapping, pages, 2 * pages, MREMAP_MAYMOVE);
        CHECK(mapping != MAP_FAILED && reads_as(mapping, pages, 0xDD) && reads_as(mapping + pages, pages, 0));
        step((uint64_t)i + 1000);
        CHECK(reads_as(mapping, pages, 0xDD) && reads_as(mapping + pages, pages, 0));
        CHECK(munmap(mapping, 2 * pages) == 0);
        block = malloc(80000);
        memset(block, 0x11, 80000);
        block = realloc(block, 80000 + bytes);
        CHECK(block && reads_as(block, 80000, 0x11));
        free(block);
    }
    return verdict();
}
