/* The part that all programs here share: the command line, the clock, checksums and the verdict.
 *
 * A program is run as `NAME CLASS [--iterations N] [program's own options]`, class S, W, A, B or C. It prints
 * `Checksum: <16 hex digits>` over its results (equal bits in, equal digits out), then one of
 *   Verification: successful                      exit 0
 *   Verification: failed (got X, expected Y)      exit 1
 *   Verification: not applicable (N iterations instead of M)   exit 0
 */
#ifndef ATOLL_PROGRAM_H
#define ATOLL_PROGRAM_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct {
    char class_;    /* 'S', 'W', 'A', 'B' or 'C' */
    int iterations; /* 0: as many as the class asks for */
} program_options;

static inline double program_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline void program_usage(const char *name) {
    fprintf(stderr, "usage: %s S|W|A|B|C [--iterations N]\n", name);
    exit(2);
}

/* Reads CLASS and --iterations; anything else ends the program with its usage and status 2. */
static inline program_options program_parse(int argc, char **argv) {
    program_options o = {0, 0};
    if (argc < 2 || strlen(argv[1]) != 1 || !strchr("SWABC", argv[1][0])) program_usage(argv[0]);
    o.class_ = argv[1][0];
    for (int i = 2; i < argc; i++) {
        if (!strcmp(argv[i], "--iterations") && i + 1 < argc) {
            char *end;
            long n = strtol(argv[++i], &end, 10);
            if (*end || n < 1 || n > 100000000) program_usage(argv[0]);
            o.iterations = (int)n;
        } else {
            program_usage(argv[0]);
        }
    }
    return o;
}

/* An option of a program's own that is one word: says whether it is there, and takes it away before `program_parse`. */
static inline int program_has(int *argc, char **argv, const char *word) {
    for (int i = 2; i < *argc; i++)
        if (!strcmp(argv[i], word)) {
            memmove(&argv[i], &argv[i + 1], (size_t)(*argc - i) * sizeof *argv);
            --*argc;
            return 1;
        }
    return 0;
}

/* An option of a program's own with a number from `least` to `most` behind it: returns the number, or `otherwise` where the option
 * is not there, and takes both words away before `program_parse`. */
static inline int program_number(int *argc, char **argv, const char *word, int least, int most, int otherwise) {
    for (int i = 2; i + 1 < *argc; i++)
        if (!strcmp(argv[i], word)) {
            char *end;
            long n = strtol(argv[i + 1], &end, 10);
            if (*end || end == argv[i + 1] || n < least || n > most) program_usage(argv[0]);
            memmove(&argv[i], &argv[i + 2], (size_t)(*argc - i - 1) * sizeof *argv);
            *argc -= 2;
            return (int)n;
        }
    return otherwise;
}

/* FNV-1a over the bytes of `n` doubles, continued from `h`; begin with PROGRAM_CHECKSUM_SEED. */
#define PROGRAM_CHECKSUM_SEED 0xcbf29ce484222325ULL
static inline uint64_t program_checksum(uint64_t h, const void *data, size_t bytes) {
    const unsigned char *p = data;
    for (size_t i = 0; i < bytes; i++) h = (h ^ p[i]) * 0x100000001b3ULL;
    return h;
}

/* The same over `rows` rows of `bytes` bytes each: rows in parallel, then the rows' checksums in order. */
static inline uint64_t program_checksum_rows(const void *data, size_t rows, size_t bytes) {
    uint64_t h = PROGRAM_CHECKSUM_SEED, *sums = malloc(rows * sizeof *sums);
    if (!sums) return 0;
#pragma omp parallel for schedule(static)
    for (size_t r = 0; r < rows; r++)
        sums[r] = program_checksum(PROGRAM_CHECKSUM_SEED, (const char *)data + r * bytes, bytes);
    h = program_checksum(h, sums, rows * sizeof *sums);
    free(sums);
    return h;
}

/* Spreads a number over 64 bits (SplitMix64): a random number that anyone can compute again from its place. */
static inline uint64_t program_mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15ULL;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
}

/* The random number of a place, at least 0 and below 1. */
static inline double program_random(uint64_t place) {
    return (double)(program_mix(place) >> 11) * 0x1p-53;
}

/* Returns a block of `count` elements; without memory for it the program ends. */
static inline void *program_allocated(size_t count, size_t bytes) {
    void *block = malloc(count * bytes);
    if (!block) {
        fprintf(stderr, "no memory for %zu elements of %zu bytes\n", count, bytes);
        exit(1);
    }
    return block;
}

/* Prints checksum, time and verdict; returns the exit status. */
static inline int program_verdict(uint64_t checksum, double seconds, int applicable, int ok, double got,
                                  double expected, int iterations, int class_iterations) {
    printf("Checksum: %016llx\n", (unsigned long long)checksum);
    printf("Seconds: %.3f\n", seconds);
    if (!applicable) {
        printf("Verification: not applicable (%d iterations instead of %d)\n", iterations, class_iterations);
        return 0;
    }
    if (ok) {
        printf("Verification: successful\n");
        return 0;
    }
    printf("Verification: failed (got %.17g, expected %.17g)\n", got, expected);
    return 1;
}

#endif
