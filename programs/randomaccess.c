/* RandomAccess of the HPC Challenge benchmark (GUPS), written to its specification. Memory layout: one table of
 * 2^k 64-bit words on the heap, with table[i] = i to begin with; nothing else grows with the class. Every update
 * xors a word at an address from a random stream, so there is no locality at all.
 *
 * Updates number four times the words, as the specification asks, in every class; --iterations N makes N times a
 * quarter of the words instead (the classes' own number is 16). Updates are atomic, so making all of them again
 * must restore the table exactly, where the specification would forgive 1 %; that holds for any N.
 * --log-words K makes the table 2^K words whatever the class says: 4 GiB are 29.
 */
#include "program.h"

/* The stream is x^n in GF(2)[x] modulo x^64 + x^2 + x + 1: a number's successor is its shift. */
#define POLYNOMIAL 7ULL
#define CHUNK_UPDATES (1 << 14) /* each chunk jumps to its place in the stream */
#define LOOKAHEAD 64            /* the specification allows 1024 updates to be under way */
#define CHECKSUM_WORDS (1 << 13)
#define ITERATIONS 16

typedef struct {
    char name;
    int log_words;
} ra_class;

static const ra_class classes[] = {{'S', 16}, {'W', 22}, {'A', 24}, {'B', 26}, {'C', 28}};

static inline uint64_t stream_next(uint64_t x) {
    return x << 1 ^ ((int64_t)x < 0 ? POLYNOMIAL : 0);
}

static uint64_t multiply(uint64_t a, uint64_t b) {
    uint64_t product = 0;
    for (; b; b >>= 1, a = stream_next(a))
        if (b & 1) product ^= a;
    return product;
}

/* Returns number n of the stream, by squaring. */
static uint64_t stream_at(uint64_t n) {
    uint64_t result = 1;
    for (uint64_t square = 2; n; n >>= 1, square = multiply(square, square))
        if (n & 1) result = multiply(result, square);
    return result;
}

/* Makes updates 1 to `updates` of the stream. Asking for a batch of addresses before updating any lets their cache
 * misses overlap; a locked instruction would otherwise wait out its own. */
static void update(uint64_t *table, uint64_t words, uint64_t updates) {
#pragma omp parallel for schedule(static)
    for (uint64_t chunk = 0; chunk < updates / CHUNK_UPDATES; chunk++) {
        uint64_t x = stream_at(chunk * CHUNK_UPDATES);
        for (int done = 0; done < CHUNK_UPDATES; done += LOOKAHEAD) {
            uint64_t batch[LOOKAHEAD];
            for (int i = 0; i < LOOKAHEAD; i++) {
                batch[i] = x = stream_next(x);
                __builtin_prefetch(&table[x & (words - 1)], 1);
            }
            for (int i = 0; i < LOOKAHEAD; i++) {
#pragma omp atomic
                table[batch[i] & (words - 1)] ^= batch[i];
            }
        }
    }
}

/* Chunks' checksums are taken in parallel and then checksummed in order. */
static uint64_t table_checksum(const uint64_t *table, uint64_t words) {
    uint64_t chunks = words / CHECKSUM_WORDS, *sums = malloc(chunks * sizeof *sums);
    if (!sums) return 0;
#pragma omp parallel for schedule(static)
    for (uint64_t c = 0; c < chunks; c++)
        sums[c] = program_checksum(PROGRAM_CHECKSUM_SEED, &table[c * CHECKSUM_WORDS], CHECKSUM_WORDS * sizeof *table);
    uint64_t sum = program_checksum(PROGRAM_CHECKSUM_SEED, sums, chunks * sizeof *sums);
    free(sums);
    return sum;
}

int main(int argc, char **argv) {
    /* A table of 2^K words instead of the class's, up to 256 GiB. */
    int log_words = program_number(&argc, argv, "--log-words", classes[0].log_words, 35, 0);
    program_options o = program_parse(argc, argv);
    const ra_class *c = classes;
    while (c->name != o.class_) c++;
    int iterations = o.iterations ? o.iterations : ITERATIONS;
    if (!log_words) log_words = c->log_words;
    uint64_t words = 1ULL << log_words, updates = words / 4 * (uint64_t)iterations;

    uint64_t *table = malloc(words * sizeof *table);
    if (!table) {
        fprintf(stderr, "randomaccess: no memory for 2^%d words\n", log_words);
        return 1;
    }
#pragma omp parallel for schedule(static)
    for (uint64_t i = 0; i < words; i++) table[i] = i;

    double start = program_seconds();
    update(table, words, updates);
    double seconds = program_seconds() - start;
    printf("RandomAccess class %c: 2^%d words, %llu updates, %.6f GUPS\n", c->name, log_words,
           (unsigned long long)updates, 1e-9 * (double)updates / seconds);
    uint64_t checksum = table_checksum(table, words);

    update(table, words, updates);
    uint64_t errors = 0;
#pragma omp parallel for schedule(static) reduction(+ : errors)
    for (uint64_t i = 0; i < words; i++) errors += table[i] != i;
    free(table);
    printf("Errors: %llu\n", (unsigned long long)errors);
    return program_verdict(checksum, seconds, 1, errors == 0, (double)errors, 0.0, iterations, ITERATIONS);
}
