/* Teams larger than --workers, growing and shrinking; the same threadprivate for the same thread; dynamic teams. */
#include "e2e.h"

enum { N = 2 << 20 };
static uint64_t *a;

int main(void) {
    a = calloc(N, 8);
    for (int n = 1; n <= 8; n++) {
        int seen = 0;
        omp_set_num_threads(n);
#pragma omp parallel reduction(+ : seen)
        {
            CHECK(omp_get_num_threads() == n);
            seen += omp_get_thread_num() + 1;
#pragma omp for
            for (long i = 0; i < N; i++) a[i] += (uint64_t)i;
        }
        CHECK(seen == n * (n + 1) / 2);
    }
    for (int n = 8; n >= 1; n -= 3) {
#pragma omp parallel for num_threads(n)
        for (long i = 0; i < N; i++) a[i] += (uint64_t)i;
    }
    for (long i = 0; i < N; i++) CHECK(a[i] == 11 * (uint64_t)i);
    int hits = 0;
#pragma omp parallel for num_threads(16) reduction(+ : hits)
    for (int i = 0; i < 1000; i++) hits++;
    CHECK(hits == 1000);
    return verdict();
}
