/* Allocates and frees for ARGV[1] seconds from every worker; what is allocated at once stays the same. */
#include "e2e.h"

int main(int argc, char **argv) {
    double seconds = argc > 1 ? atof(argv[1]) : 2, end = omp_get_wtime() + seconds;
    long rounds = 0;
    while (omp_get_wtime() < end) {
#pragma omp parallel reduction(+ : rounds)
        {
            uint64_t r = mix((uint64_t)(rounds * 64 + omp_get_thread_num()));
            enum { HELD = 16 };
            unsigned char *held[HELD] = {0};
            size_t size[HELD];
            for (int i = 0; i < 200; i++) {
                int k = (int)(r % HELD);
                r = mix(r);
                if (held[k]) {
                    CHECK(held[k][0] == (unsigned char)k && held[k][size[k] - 1] == (unsigned char)(k + 1));
                    free(held[k]);
                }
                size[k] = 64 + r % (k < 8 ? 2000 : 400000);
                held[k] = malloc(size[k]);
                held[k][0] = (unsigned char)k;
                held[k][size[k] - 1] = (unsigned char)(k + 1);
                r = mix(r);
            }
            for (int i = 0; i < HELD; i++) free(held[i]);
            rounds++;
        }
    }
    fprintf(stderr, "%ld rounds\n", rounds);
    return verdict();
}
