/* Parallel regions: sizes, nesting, ancestors, conditions, threadprivate data. */
// env: OMP_MAX_ACTIVE_LEVELS=3
#include "check.h"

static int counter;
static int kept = 5;
#pragma omp threadprivate(kept)

static void sizes(void) {
    int most = omp_get_max_threads(), seen = 0;
#pragma omp parallel reduction(+ : seen)
    {
        CHECK(omp_get_num_threads() == most);
        CHECK(omp_in_parallel() == (most > 1));
        CHECK(omp_get_level() == 1);
        CHECK(omp_get_ancestor_thread_num(0) == 0);
        CHECK(omp_get_ancestor_thread_num(1) == omp_get_thread_num());
        CHECK(omp_get_ancestor_thread_num(2) == -1);
        CHECK(omp_get_team_size(0) == 1 && omp_get_team_size(1) == most);
        seen += 1;
    }
    CHECK(seen == most && !omp_in_parallel() && omp_get_level() == 0);
    for (int n = 1; n <= 6; n++) {
        unsigned mask = 0;
#pragma omp parallel num_threads(n) reduction(| : mask)
        {
            CHECK(omp_get_num_threads() == n);
            mask |= 1u << omp_get_thread_num();
        }
        CHECK(mask == (1u << n) - 1);
#pragma omp parallel if (n > 3) num_threads(n)
        CHECK(omp_get_num_threads() == (n > 3 ? n : 1));
    }
}

static void nested(void) {
    int total = 0;
#pragma omp parallel num_threads(3) reduction(+ : total)
    {
        int outer = omp_get_thread_num();
        for (int round = 0; round < 20; round++) {
#pragma omp parallel num_threads(2) reduction(+ : total)
            {
                CHECK(omp_get_num_threads() == 2);
                CHECK(omp_get_level() == 2 && omp_get_active_level() == 2);
                CHECK(omp_get_ancestor_thread_num(1) == outer);
                CHECK(omp_get_team_size(1) == 3 && omp_get_team_size(2) == 2);
                total += 1;
#pragma omp barrier
            }
        }
        omp_set_max_active_levels(1);
#pragma omp parallel num_threads(2)
        CHECK(omp_get_num_threads() == 1 && omp_get_level() == 2 && omp_get_active_level() == 1);
    }
    CHECK(total == 3 * 2 * 20);
    CHECK(omp_get_max_active_levels() == 3);
}

static void private_data(void) {
    int *places[8] = {0};
#pragma omp parallel num_threads(4) copyin(kept)
    {
        CHECK(kept == 5);
        kept = 100 + omp_get_thread_num();
        places[omp_get_thread_num()] = &kept;
    }
    CHECK(kept == 100);
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < i; j++)
            CHECK(places[i] != places[j]);
#pragma omp parallel num_threads(4)
    {
        CHECK(kept == 100 + omp_get_thread_num());
        CHECK(places[omp_get_thread_num()] == &kept);
    }
    kept = 7;
#pragma omp parallel num_threads(4) copyin(kept)
    CHECK(kept == 7);
}

static void many(void) {
    for (int round = 0; round < 2000; round++) {
#pragma omp parallel
        {
#pragma omp atomic
            counter++;
        }
    }
    CHECK(counter == 2000 * omp_get_max_threads());
}

static void outside(void) {
    /* A team of one everywhere. */
    int once = 0;
#pragma omp barrier
#pragma omp single
    once++;
#pragma omp for schedule(dynamic)
    for (int i = 0; i < 10; i++)
        once++;
#pragma omp sections
    {
#pragma omp section
        once++;
#pragma omp section
        once++;
    }
#pragma omp master
    once++;
#pragma omp task shared(once)
    once++;
#pragma omp taskwait
    CHECK(once == 15);
}

int main(void) {
    outside();
    sizes();
    nested();
    private_data();
    many();
    outside();
    return result();
}
