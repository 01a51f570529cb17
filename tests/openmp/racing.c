/* A program with data races: whoever stores last, each word holds a value that somebody stored, whole; and what lies beside it is
 * not touched. With the argument `clean` it has none. */
#include "check.h"
#include <stdint.h>
#include <string.h>

enum { N = 512, ROUNDS = 20 };

uint64_t raced[N];
/* Written by one thread each, byte by byte: no race. */
unsigned char neighbours[N];
static int pairs[2 * N];

/* All bytes of it say who stored it, and none of them is 0. */
static uint64_t value(int thread, int round) { return 0x0101010101010101u * (uint64_t)(1 + (thread * 50 + round) % 250); }

int main(int argc, char **argv) {
    int clean = argc > 1 && !strcmp(argv[1], "clean"), threads = 1;
    long torn = 0, lost = 0;
    for (int round = 0; round < ROUNDS; round++) {
#pragma omp parallel
        {
            int me = omp_get_thread_num(), all = omp_get_num_threads();
            if (me == 0)
                threads = all;
            for (int i = 0; i < N; i++) {
                if (!clean || i % all == me)
                    raced[i] = value(me, round);
                if (i % all == me) {
                    neighbours[i] = (unsigned char)(me + round + 1);
                    pairs[2 * i] = me + 1;
                    pairs[2 * i + 1] = round + 1;
                }
            }
        }
        for (int i = 0; i < N; i++) {
            int found = 0;
            for (int t = 0; t < threads; t++)
                found |= raced[i] == value(t, round);
            torn += !found;
            lost += neighbours[i] != (unsigned char)(i % threads + round + 1);
            lost += pairs[2 * i] != i % threads + 1 || pairs[2 * i + 1] != round + 1;
        }
    }
    CHECK(torn == 0);
    CHECK(lost == 0);
    return result();
}
