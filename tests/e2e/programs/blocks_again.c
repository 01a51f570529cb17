/* Large blocks that are allocated and freed in turn: zeroed ones, ones that grow, and ones that another thread frees. Says what it finds wrong; with an
 * argument it frees a block twice. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 200 };

static int wrong;

static void expect(int holds, const char *what)
{
    if (!holds && wrong++ == 0)
        printf("wrong: %s\n", what);
}

static int is_zero(const char *block, size_t bytes)
{
    return block[0] == 0 && memcmp(block, block + 1, bytes - 1) == 0;
}

static void zeroed(size_t bytes, int steps)
{
    for (int i = 0; i < steps; i++) {
        char *volatile block = calloc(1, bytes);
        expect(is_zero(block, bytes), "a block of calloc's is not zero");
        memset(block, i + 1, bytes);
        free(block);
    }
}

static void grown(void)
{
    for (int i = 0; i < STEPS / 10; i++) {
        size_t bytes = 64 << 10;
        char *block = malloc(bytes);
        memset(block, 1, bytes);
        for (; bytes < 8 << 20; bytes += 64 << 10) {
            block = realloc(block, bytes + (64 << 10));
            memset(block + bytes, 1, 64 << 10);
        }
        expect(block[0] == 1 && memcmp(block, block + 1, bytes - 1) == 0, "a block that grew lost its content");
        free(block);
    }
}

static void handed_over(void)
{
    enum { BLOCKS = 32 };
    static char *blocks[BLOCKS];
    for (int i = 0; i < STEPS; i++) {
        size_t bytes = (size_t)(64 + i % 40 * 8) << 10;
#pragma omp parallel for
        for (int b = 0; b < BLOCKS; b++) {
            blocks[b] = malloc(bytes);
            memset(blocks[b], b + 1, bytes);
        }
#pragma omp parallel for schedule(dynamic)
        for (int b = BLOCKS - 1; b >= 0; b--) {
            expect(blocks[b][0] == b + 1 && memcmp(blocks[b], blocks[b] + 1, bytes - 1) == 0, "two blocks are one");
            free(blocks[b]);
        }
    }
}

int main(int argc, char **argv)
{
    (void)argv;
#pragma omp parallel
    {
    }
    if (argc > 1) {
        char *volatile block = malloc(100 << 10);
        free(block);
        free(block);
        return 1;
    }
    zeroed(64 << 10, STEPS * 10);
    zeroed(1 << 20, STEPS);
    zeroed(16 << 20, STEPS / 10);
    grown();
    handed_over();
    puts(wrong ? "failed" : "right");
    return wrong != 0;
}
