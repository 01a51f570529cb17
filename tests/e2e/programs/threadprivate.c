/* Trap 8: threadprivate with copyin; TLS addresses are unique in the team; trap 9: a large static TLS block. */
#include "e2e.h"

#define MOST 64
static int counter = 7;
#pragma omp threadprivate(counter)
static double table[131072]; /* 1 MB */
#pragma omp threadprivate(table)
static __thread int own = 3;
int shared_seen[MOST];
int *addresses[MOST];

static void distinct(int n) {
    for (int i = 0; i < n; i++)
        for (int j = 0; j < i; j++) CHECK(addresses[i] != addresses[j]);
}

int main(void) {
    int n = 0;
    counter = 42;
    for (int i = 0; i < 131072; i++) table[i] = i * 0.5;
#pragma omp parallel copyin(counter, table)
    {
        int me = omp_get_thread_num();
        CHECK(counter == 42);
        for (int i = 0; i < 131072; i++) CHECK(table[i] == i * 0.5);
        CHECK(own == 3);
        addresses[me] = &counter;
        counter = 100 + me;
        own = me;
        table[me] = me;
#pragma omp single
        n = omp_get_num_threads();
    }
    distinct(n);
    CHECK(*addresses[0] == 100); /* the master's copy is its own */
#pragma omp parallel
    {
        int me = omp_get_thread_num();
        CHECK(counter == 100 + me); /* kept from region to region */
        CHECK(own == me);
        CHECK(table[me] == me);
        addresses[me] = &own;
        shared_seen[me] = counter;
        int *master = NULL;
#pragma omp master
        counter = 1000;
#pragma omp barrier
#pragma omp single copyprivate(master)
        master = &counter;
        (void)master;
    }
    distinct(n);
    for (int i = 0; i < n; i++) CHECK(shared_seen[i] == 100 + i);
    counter = 5;
#pragma omp parallel copyin(counter)
    CHECK(counter == 5);
    /* A worker reads another one's threadprivate variable by its address. */
    static int *where;
#pragma omp parallel
    {
#pragma omp master
        { counter = 77; where = &counter; }
#pragma omp barrier
        CHECK(*where == 77);
#pragma omp barrier
        if (omp_get_thread_num() == omp_get_num_threads() - 1) *where = 78;
    }
    CHECK(counter == 78);
#pragma omp parallel
    {
        if (omp_get_thread_num() == omp_get_num_threads() - 1) { counter = 99; where = &counter; }
#pragma omp barrier
        CHECK(*where == 99);
    }
    return verdict();
}
