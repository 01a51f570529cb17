/* What a thread keeps for itself it finds in every region, also where small ones would run faster at home. */
#include "e2e.h"

static double data[1 << 12];
static int mine;
#pragma omp threadprivate(mine)

int main(void) {
#pragma omp parallel
    mine = omp_get_thread_num();
    for (int round = 0; round < 300; round++) {
#pragma omp parallel for
        for (int i = 0; i < 1 << 12; i++) data[i] += 1;
#pragma omp parallel
        {
            CHECK(mine == omp_get_thread_num() + round);
            mine++;
        }
    }
    return verdict();
}
