/* Random look-ups by all workers in a table that they share: what one worker evicts, the others have mapped.
   argv[1]: megabytes of the table; argv[2]: look-ups of each worker. */
#include <omp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    size_t words = (argc > 1 ? strtoul(argv[1], NULL, 10) : 16) << 17;
    long looks = argc > 2 ? atol(argv[2]) : 10000;
    uint64_t *table = malloc(words * sizeof *table), sum = 0;
    if (!table) return 1;
#pragma omp parallel for
    for (size_t i = 0; i < words; i++) table[i] = i * 0x9e3779b97f4a7c15u;
#pragma omp parallel for schedule(static) reduction(+ : sum)
    for (long i = 0; i < 2 * looks; i++) {
        uint64_t x = (i + 1) * 0xbf58476d1ce4e5b9u;
        x = (x ^ x >> 31) * 0x94d049bb133111ebu;
        sum += table[(x ^ x >> 29) % words] >> 7;
    }
    printf("%llu\n", (unsigned long long)sum);
    return 0;
}
