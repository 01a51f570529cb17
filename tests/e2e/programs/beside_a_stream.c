// Visits one array at random all the time while it reads through another one, again and again, as programs do that build a graph from a list of its
// edges. The first one and a few pages just fit into near memory.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { VISITED = (48 << 20) / 8, READ = (48 << 20) / 8, PASSES = 3, VISITS = 4 };

int main(void)
{
    uint64_t *read = malloc(READ * 8ul), *visited = calloc(VISITED, 8), sum = 0;
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < READ; i++) read[i] = i * 0x9E3779B97F4A7C15u;
    for (int pass = 0; pass < PASSES; pass++) {
#pragma omp parallel for schedule(static)
        for (size_t i = 0; i < READ; i += 8) {
            uint64_t at = read[i];
            for (int visit = 0; visit < VISITS; visit++) {
                at = (at ^ at >> 29) * 0xBF58476D1CE4E5B9u;
#pragma omp atomic
                visited[(at >> 16) % VISITED] += at;
            }
        }
    }
    for (size_t i = 0; i < VISITED; i++) sum += visited[i] * (i | 1);
    printf("%llx\n", (unsigned long long)sum);
    return 0;
}
