/* Most of the data in blocks of a few bytes, with strings as short. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 900000 };

int main(void) {
    char **blocks = malloc(COUNT * sizeof *blocks);
#pragma omp parallel for
    for (int i = 0; i < COUNT; i++) {
        size_t size = (size_t)(i % 15 + 1);
        blocks[i] = malloc(size);
        memset(blocks[i], i, size);
    }
    long wrong = 0;
#pragma omp parallel for reduction(+ : wrong)
    for (int i = 0; i < COUNT; i++) {
        size_t last = (size_t)(i % 15);
        wrong += blocks[i][0] != (char)i || blocks[i][last] != (char)i;
        if (i % 3 == 0) {
            free(blocks[i]);
            blocks[i] = strdup("a name");
        }
    }
    for (int i = 0; i < COUNT; i += 3)
        wrong += strcmp(blocks[i], "a name") != 0;
    puts(wrong ? "wrong" : "all well");
    return wrong != 0;
}
