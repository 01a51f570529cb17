/* Without OpenMP: asks for many blocks before it touches the first, and for more once it has touched all, as some collectors do. */
#include <stdio.h>
#include <stdlib.h>

enum { SIZE = (1 << 20) + 39, AHEAD = 120, MORE = 60 };
static char *blocks[AHEAD + MORE];

static void touch(char *block, int seed) {
    for (int i = 0; i < SIZE; i += 512)
        block[i] = (char)(i / 512 + seed);
}

int main(void) {
    for (int i = 0; i < AHEAD; i++)
        blocks[i] = malloc(SIZE);
    for (int i = 0; i < AHEAD; i++)
        touch(blocks[i], i);
    for (int i = AHEAD; i < AHEAD + MORE; i++)
        touch(blocks[i] = malloc(SIZE), i);
    long wrong = 0;
    for (int n = 0; n < AHEAD + MORE; n++)
        for (int i = 0; i < SIZE; i += 512)
            wrong += blocks[n][i] != (char)(i / 512 + n);
    printf("wrong: %ld\n", wrong);
    return wrong != 0;
}
