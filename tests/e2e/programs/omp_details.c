// Details of the standard: dependences over iterators that name nothing, pools that get their memory back and have room for a block that grows, absent arguments of a
// target region, the default allocator of the environment, zeros in affinity formats.
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int elements(int n) {
    int a[4] = {0}, wrong = 0;
#pragma omp parallel
#pragma omp single
    for (int round = 0; round < 50; round++) {
#pragma omp task depend(iterator(i = 0 : n), out : a[i])
        a[3] = round;
#pragma omp taskwait
        wrong += a[3] != round;
#pragma omp task depend(iterator(i = 0 : n), in : a[i]) depend(iterator(i = 0 : n), mutexinoutset : a[i])
        a[2] = round;
#pragma omp taskwait depend(iterator(i = 0 : n), in : a[i])
#pragma omp taskwait
        wrong += a[2] != round;
    }
    return wrong;
}

static int pools(void) {
    int wrong = 0;
    omp_alloctrait_t traits[] = {{omp_atk_pool_size, 1 << 20}, {omp_atk_fallback, omp_atv_null_fb}};
    omp_allocator_handle_t pool = omp_init_allocator(omp_default_mem_space, 2, traits);
    for (int i = 0; i < 50; i++) {
        char *block = omp_alloc(300000, pool);
        if (!block) return 1000 + i;
        memset(block, i, 300000);
        block = omp_realloc(block, 600000, omp_null_allocator, omp_null_allocator);
        if (!block) return 2000 + i;
        wrong += block[299999] != (char)i;
        wrong += omp_alloc(600000, pool) != NULL;
        omp_free(block, omp_null_allocator);
    }
    omp_destroy_allocator(pool);
    return wrong;
}

static int grown(void) {
    int wrong = 0;
    omp_alloctrait_t traits[] = {{omp_atk_pool_size, 1 << 20}, {omp_atk_fallback, omp_atv_null_fb}};
    omp_allocator_handle_t pool = omp_init_allocator(omp_default_mem_space, 2, traits);
    char *block = omp_alloc(600000, pool);
    if (!block) return 100;
    memset(block, 7, 600000);
    block = omp_realloc(block, 900000, pool, pool);
    if (!block) return 200;
    wrong += block[599999] != 7;
    // The old block stays where there is no room.
    wrong += omp_realloc(block, 2000000, pool, pool) != NULL;
    wrong += block[599999] != 7;
    wrong += omp_alloc(300000, pool) != NULL;
    block = omp_realloc(block, 500000, pool, pool);
    if (!block) return 300;
    void *other = omp_alloc(300000, pool);
    wrong += other == NULL;
    omp_free(block, pool);
    omp_free(other, pool);
    block = omp_alloc(900000, pool);
    wrong += block == NULL;
    omp_free(block, pool);
    omp_destroy_allocator(pool);
    return wrong;
}

static int absent(int *optional) {
    int seen = 0;
#pragma omp target map(tofrom : seen) firstprivate(optional)
    seen = optional == NULL ? 1 : *optional;
    return seen;
}

int main(int argc, char **argv) {
    int five = 5;
    printf("%d %d %d\n", elements(0), elements(1), elements(3));
    printf("%d\n", pools());
    printf("%d\n", grown());
    printf("%d %d\n", absent(NULL), absent(&five));
    printf("%d\n", omp_get_default_allocator() == omp_high_bw_mem_alloc);
    char line[200];
#pragma omp parallel num_threads(2)
#pragma omp single
    {
        omp_capture_affinity(line, sizeof line, "%0.4L %.4L %4L| %0.3N %0.5{ancestor_tnum} %0.12{nesting_level}");
        puts(line);
    }
    return 0;
}
