/* Cancellation of regions, loops, sections and task groups. */
// env: OMP_CANCELLATION=true
#include "check.h"

int main(void) {
    CHECK(omp_get_cancellation());
    for (int round = 0; round < 50; round++) {
        int after = 0, shares = 0;
#pragma omp parallel reduction(+ : shares)
        {
            for (int i = 0; i < 3; i++) {
#pragma omp for schedule(dynamic)
                for (int j = 0; j < 8; j++)
                    shares++;
            }
#pragma omp barrier
            if (omp_get_thread_num() == omp_get_num_threads() - 1) {
#pragma omp cancel parallel
            }
#pragma omp barrier
#pragma omp atomic
            after++;
        }
        CHECK(after == 0);
        int count = 0;
#pragma omp parallel
        {
#pragma omp for schedule(dynamic)
            for (int i = 0; i < 100000; i++) {
#pragma omp atomic
                count++;
                if (i == 5) {
#pragma omp cancel for
                }
#pragma omp cancellation point for
            }
#pragma omp for
            for (int i = 0; i < 10; i++) {
#pragma omp atomic
                after++;
#pragma omp cancellation point for
            }
        }
        CHECK(after == 10 && count < 100000);
        int sections = 0;
#pragma omp parallel
#pragma omp sections
        {
#pragma omp section
            {
#pragma omp cancel sections
                sections++;
            }
#pragma omp section
            {
#pragma omp cancellation point sections
            }
        }
        CHECK(sections == 0);
        int begun = 0;
#pragma omp parallel
#pragma omp single
        {
#pragma omp taskgroup
            {
#pragma omp task shared(begun)
                {
#pragma omp atomic
                    begun++;
#pragma omp cancel taskgroup
#pragma omp atomic
                    begun += 1000;
                }
                for (int i = 0; i < 100; i++) {
#pragma omp task shared(begun)
                    {
#pragma omp cancellation point taskgroup
#pragma omp atomic
                        begun++;
                    }
                }
            }
        }
        CHECK(begun < 1000);
    }
    return result();
}
