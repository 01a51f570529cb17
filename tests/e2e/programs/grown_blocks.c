/* Blocks that libc made, small and as mappings of their own, that grow when the program needs memory, and shrink again. */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static unsigned char value(size_t i) { return (unsigned char)(i * 5 + i / 1000); }

int main(void) {
    size_t sizes[] = {1000, 60000, 131072, 1 << 20, 3 << 20, (2 << 20) - 16};
    enum { BLOCKS = sizeof sizes / sizeof *sizes };
    unsigned char *blocks[BLOCKS];
    for (int b = 0; b < BLOCKS; b++) {
        blocks[b] = malloc(sizes[b]);
        size_t usable = malloc_usable_size(blocks[b]);
        if (usable < sizes[b]) return puts("too small"), 1;
        for (size_t i = 0; i < usable; i++) blocks[b][i] = value(i);
        sizes[b] = usable;
    }
    long sum = 0;
    for (int round = 0; round < 3; round++)
        for (int b = 0; b < BLOCKS; b++) {
            size_t more = sizes[b] * 2 + (12 << 20);
            blocks[b] = realloc(blocks[b], more);
            for (size_t i = 0; i < sizes[b]; i++)
                if (blocks[b][i] != value(i)) return printf("block %d differs at %zu\n", b, i), 1;
            memset(blocks[b] + sizes[b], 7, more - sizes[b]);
            for (size_t i = 0; i < more; i += 4096) sum += blocks[b][i];
            blocks[b] = realloc(blocks[b], round < 2 ? more : sizes[b] / 2);
        }
    for (int b = 0; b < BLOCKS; b++) free(blocks[b]);
    printf("%ld\n", sum);
    return 0;
}
