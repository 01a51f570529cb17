/* Small globals, .data and .bss, function-local statics, pointers to them, written by every worker. */
#include "e2e.h"

static int zeroed, set = 5;
int exported;
static struct { int a; char text[10]; } record = {1, "text"};
static int *pointer = &set;
static uint64_t large[4 << 20];
static uint64_t large_set[1 << 18] = {1, 2, 3};

static int next(void) {
    static int n;
    return __atomic_add_fetch(&n, 1, __ATOMIC_SEQ_CST);
}

int main(void) {
    int threads = 0;
#pragma omp parallel
    {
#pragma omp atomic
        zeroed++;
#pragma omp atomic
        (*pointer)++;
#pragma omp critical
        { exported += 2; record.a *= 2; record.text[0] = 'T'; }
        next();
#pragma omp single
        threads = omp_get_num_threads();
    }
    CHECK(zeroed == threads && set == 5 + threads && exported == 2 * threads && record.a == 1 << threads);
    CHECK(!strcmp(record.text, "Text") && next() == threads + 1);
    CHECK(large_set[2] == 3 && large_set[5] == 0);
#pragma omp parallel for
    for (long i = 0; i < 4 << 20; i++) large[i] += mix((uint64_t)i), large_set[i & ((1 << 18) - 1)] |= 0;
    for (long i = 0; i < 4 << 20; i++) CHECK(large[i] == mix((uint64_t)i));
    CHECK(large_set[0] == 1 && large_set[1] == 2 && large_set[2] == 3);
    return verdict();
}
