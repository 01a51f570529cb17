/* Far more than the machine has: 1 TiB by malloc, 64 GiB by calloc, touched in a few places. */
#include "e2e.h"

int main(void) {
    size_t tib = (size_t)1 << 40, gib64 = (size_t)64 << 30;
    unsigned char *a = malloc(tib);
    uint64_t *b = calloc(gib64 / 8, 8);
    printf("malloc %s calloc %s\n", a ? "gives" : "refuses", b ? "gives" : "refuses");
    if (a) {
#pragma omp parallel for
        for (int i = 0; i < 256; i++) a[(tib / 256) * (size_t)i + 5] = (unsigned char)i;
        for (int i = 0; i < 256; i++) CHECK(a[(tib / 256) * (size_t)i + 5] == i);
    }
    if (b) {
#pragma omp parallel for
        for (int i = 0; i < 1000; i++) b[(gib64 / 8 / 1000) * (size_t)i] = mix((uint64_t)i);
        for (int i = 0; i < 1000; i++) {
            size_t at = (gib64 / 8 / 1000) * (size_t)i;
            CHECK(b[at] == mix((uint64_t)i) && b[at + 1] == 0);
        }
    }
    free(a);
    free(b);
    return verdict();
}
