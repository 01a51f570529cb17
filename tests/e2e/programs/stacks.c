/* Trap 7: stack variables of the master and of workers are shared; deep recursion on every stack. */
#include "e2e.h"

#define MOST 64
static int *volatile of_worker[MOST];

static __attribute__((noinline)) uint64_t deep(int level, uint64_t seed) {
    volatile uint64_t frame[128]; /* 1 KB */
    for (int i = 0; i < 128; i++) frame[i] = mix(seed + (uint64_t)i);
    uint64_t below = level ? deep(level - 1, mix(seed)) : 0;
    uint64_t sum = below;
    for (int i = 0; i < 128; i++) sum = sum * 31 + frame[i];
    return sum;
}

int main(int argc, char **argv) {
    int levels = argc > 1 ? atoi(argv[1]) : 1500;
    int on_master = 5, sum = 0, big[20000];
    for (int i = 0; i < 20000; i++) big[i] = i;
#pragma omp parallel
    {
        int mine = 10 + omp_get_thread_num(), n = omp_get_num_threads();
        of_worker[omp_get_thread_num()] = &mine;
#pragma omp barrier
        int *next = of_worker[(omp_get_thread_num() + 1) % n];
        CHECK(*next == 10 + (omp_get_thread_num() + 1) % n);
#pragma omp barrier
#pragma omp atomic
        *next += 100;
#pragma omp atomic
        on_master += 1;
#pragma omp barrier
        CHECK(mine == 110 + omp_get_thread_num());
#pragma omp single
        sum = n;
#pragma omp for
        for (int i = 0; i < 20000; i++) big[i] += 1;
    }
    CHECK(on_master == 5 + sum);
    for (int i = 0; i < 20000; i++) CHECK(big[i] == i + 1);
    printf("%016llx\n", (unsigned long long)deep(levels, 1));
    uint64_t all = 0;
#pragma omp parallel reduction(^ : all)
    {
        uint64_t mine = deep(levels, 2);
        all ^= omp_get_thread_num() ? 0 : mine;
        CHECK(mine == deep(levels, 2));
    }
    printf("%016llx\n", (unsigned long long)all);
    /* A region begun deep in the stack. */
    printf("%016llx\n", (unsigned long long)deep(levels / 2, 3));
    return verdict();
}
