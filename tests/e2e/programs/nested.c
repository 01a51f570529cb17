/* Nested regions, active (OMP_MAX_ACTIVE_LEVELS=2) and serialised. */
#include "e2e.h"

static uint64_t *array;
enum { N = 1 << 20 };

int main(void) {
    omp_set_max_active_levels(2);
    int inner_sizes = 0, outer_size = 0, ancestors = 0;
    array = malloc(N * sizeof *array);
#pragma omp parallel num_threads(2)
    {
        int me = omp_get_thread_num();
        int on_stack = 1000 * (me + 1), *at = &on_stack;
#pragma omp atomic
        outer_size++;
#pragma omp parallel num_threads(2) shared(on_stack)
        {
            CHECK(omp_get_level() == 2);
            CHECK(*at >= 1000 * (me + 1));
            CHECK(omp_get_ancestor_thread_num(1) == me);
#pragma omp atomic
            on_stack += 1;
#pragma omp atomic
            inner_sizes++;
#pragma omp atomic
            ancestors += omp_get_ancestor_thread_num(1);
#pragma omp barrier
            CHECK(on_stack == 1000 * (me + 1) + omp_get_num_threads());
#pragma omp for
            for (long i = 0; i < N / 2; i++) array[me * (N / 2) + i] = mix((uint64_t)(me * (N / 2) + i));
        }
    }
    printf("outer %d inner %d ancestors %d\n", outer_size, inner_sizes, ancestors);
    for (uint64_t i = 0; i < N; i++) CHECK(array[i] == mix(i));
    omp_set_max_active_levels(1);
    int inner = 0;
#pragma omp parallel num_threads(2)
#pragma omp parallel num_threads(2)
    {
        CHECK(omp_get_num_threads() == 1);
#pragma omp atomic
        inner++;
    }
    printf("serialised %d\n", inner);
    return verdict();
}
