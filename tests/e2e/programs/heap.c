/* malloc in one worker and free in another, growth by realloc, contents after free and malloc, calloc of reused memory,
 * aligned forms, a mixture of sizes from every worker. */
#define _GNU_SOURCE
#include "e2e.h"
#include <malloc.h>

enum { SLOTS = 512 };
static unsigned char *slot[SLOTS];
static size_t length[SLOTS];

static void fill(unsigned char *p, size_t n, uint64_t seed) {
    for (size_t i = 0; i < n; i++) p[i] = (unsigned char)(seed + i * 7);
}
static int holds(const unsigned char *p, size_t n, uint64_t seed) {
    for (size_t i = 0; i < n; i++)
        if (p[i] != (unsigned char)(seed + i * 7)) return 0;
    return 1;
}
static size_t size_of(uint64_t r) {
    static const size_t sizes[] = {24, 200, 3000, 5000, 40000, 70000, 150000, 300000};
    return sizes[r % 8] + (r >> 8) % 100;
}

int main(void) {
    for (int round = 0; round < 6; round++) {
#pragma omp parallel for schedule(dynamic, 3)
        for (int i = 0; i < SLOTS; i++) {
            length[i] = size_of(mix((uint64_t)(i + round * SLOTS)));
            slot[i] = malloc(length[i]);
            CHECK(slot[i] && (uintptr_t)slot[i] % 16 == 0);
            CHECK(malloc_usable_size(slot[i]) >= length[i]);
            fill(slot[i], length[i], (uint64_t)i);
        }
#pragma omp parallel for schedule(dynamic, 5)
        for (int i = SLOTS - 1; i >= 0; i--) { /* somebody else's block */
            CHECK(holds(slot[i], length[i], (uint64_t)i));
            if (i % 3 == 0) {
                size_t more = length[i] * 2 + 17;
                slot[i] = realloc(slot[i], more);
                CHECK(holds(slot[i], length[i], (uint64_t)i));
                fill(slot[i], more, (uint64_t)i);
                length[i] = more;
            }
        }
#pragma omp parallel for schedule(static, 1)
        for (int i = 0; i < SLOTS; i++) {
            CHECK(holds(slot[i], length[i], (uint64_t)i));
            free(slot[i]);
        }
    }
    /* Large blocks: growth, shrinking, content. */
    size_t n = 1 << 16;
    unsigned char *p = NULL;
    size_t had = 0;
    for (; n <= (size_t)24 << 20; n = n * 3 / 2) {
        p = realloc(p, n);
        CHECK(holds(p, had, 9));
        fill(p + had, n - had, 9 + had * 7);
        had = n;
    }
    CHECK(holds(p, had, 9));
    p = realloc(p, 1 << 20);
    CHECK(holds(p, 1 << 20, 9));
    p = realloc(p, (size_t)24 << 20);
    CHECK(holds(p, 1 << 20, 9));
    free(p);
    /* calloc of what was written before: all zero. */
    for (int round = 0; round < 4; round++) {
        size_t bytes = ((size_t)5 << 20) + (size_t)round * 4096 * 3 + 100;
        unsigned char *c = calloc(bytes, 1), *m;
        int zero = 1;
        for (size_t i = 0; i < bytes; i++) zero &= c[i] == 0;
        CHECK(zero);
        memset(c, 0xff, bytes);
        free(c);
        m = malloc(bytes);
        memset(m, 0xee, bytes);
        free(m);
        c = calloc(3000, 1);
        for (size_t i = 0; i < 3000; i++) CHECK(c[i] == 0);
        memset(c, 1, 3000);
        free(c);
    }
#pragma omp parallel for
    for (int i = 0; i < 64; i++) {
        unsigned char *c = calloc(1, 200000 + (size_t)i * 1000);
        int zero = 1;
        for (int k = 0; k < 200000 + i * 1000; k++) zero &= c[k] == 0;
        CHECK(zero);
        memset(c, 0xaa, 200000 + (size_t)i * 1000);
        free(c);
    }
    /* Aligned forms. */
    for (size_t align = 16; align <= (size_t)4 << 20; align *= 4) {
        void *q = NULL;
        CHECK(posix_memalign(&q, align, 100000) == 0 && (uintptr_t)q % align == 0);
        memset(q, 3, 100000);
        free(q);
        q = aligned_alloc(align, align * 2);
        CHECK((uintptr_t)q % align == 0);
        memset(q, 4, align * 2);
        free(q);
        q = memalign(align, 10);
        CHECK((uintptr_t)q % align == 0);
        free(q);
    }
    void *v = valloc(5000);
    CHECK((uintptr_t)v % 4096 == 0);
    free(v);
    CHECK(malloc(SIZE_MAX / 2) == NULL);
    CHECK(calloc(SIZE_MAX / 4, 8) == NULL);
    CHECK(reallocarray(NULL, SIZE_MAX / 2, 4) == NULL);
    free(NULL);
    void *zero = malloc(0);
    free(zero);
    char *s = strdup("text");
    CHECK(!strcmp(s, "text"));
    free(s);
    return verdict();
}
