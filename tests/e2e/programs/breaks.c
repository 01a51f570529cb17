/* Trap 4: brk and sbrk by hand, before workers exist and after. */
#define _GNU_SOURCE
#include "e2e.h"
#include <unistd.h>

enum { BYTES = 6 << 20 };

static void use(int first) {
    uint64_t *edge = sbrk(BYTES);
    CHECK(edge != (void *)-1);
    if (edge == (void *)-1) return;
#pragma omp parallel for
    for (long i = 0; i < BYTES / 8; i++) edge[i] = mix((uint64_t)(i + first));
    for (long i = 0; i < BYTES / 8; i++) CHECK(edge[i] == mix((uint64_t)(i + first)));
}

int main(void) {
    use(1);
    use(2);
    CHECK(sbrk(-BYTES) != (void *)-1);
    use(3);
    return verdict();
}
