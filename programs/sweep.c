/* What a page costs on its way in and out: a table is read, changed and written back, page by page.
 *
 *   sweep CLASS [--pattern sequential|random|look|update] [--passes N] [--megabytes M]
 *
 * sequential: every thread walks its own part of the table from front to back and changes one 8-byte word of each
 * cache line. random: it visits every page of its part once a pass, in an order shuffled anew for each pass, and
 * changes one word of it. No thread ever touches another's part then. look: every thread visits every page of the whole table
 * once a pass, in an order of its own, and reads one word of it; update: it adds to the word, atomically. Printed is the time of
 * the passes by 4K page visited (all threads' visits together); making and verifying the table are not timed.
 * --passes is the same as --iterations; --megabytes sets the table's size instead of the class.
 *
 * Verified is every word: what a pass does to it depends only on what it was and the number of the pass, or for update on how many
 * visits there were.
 */
#include "program.h"

#include <omp.h>

#define PAGE 4096
#define WORDS (PAGE / 8)
#define LINE_WORDS 8

enum pattern { SEQUENTIAL, RANDOM, LOOK, UPDATE };
static const char *const patterns[] = {"sequential", "random", "look", "update"};

typedef struct {
    char name;
    int megabytes, passes;
} sweep_class;

static const sweep_class classes[] = {{'S', 4, 4}, {'W', 32, 4}, {'A', 128, 4}, {'B', 512, 4}, {'C', 2048, 4}};

static inline uint64_t mix(uint64_t x) {
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ x >> 27) * 0x94d049bb133111ebULL;
    return x ^ x >> 31;
}

static inline uint64_t first_value(uint64_t word) {
    return mix(word + 1);
}

static inline uint64_t changed(uint64_t value, int pass) {
    return value * 6364136223846793005ULL + (uint64_t)pass + 1;
}

/* The word of a page that the random pattern changes. */
static inline uint64_t word_of(uint64_t page) {
    return mix(page) % WORDS;
}

/* The `i`th page visited in `pass` out of `n`: a permutation of 0..n, made of a Feistel network on the next power of
 * four whose values beyond `n` are walked over. */
static uint64_t shuffled(uint64_t i, uint64_t n, int half_bits, int pass) {
    uint64_t mask = (1ULL << half_bits) - 1;
    do {
        uint64_t left = i >> half_bits, right = i & mask;
        for (int round = 0; round < 4; round++) {
            uint64_t next = left ^ (mix(right << 8 ^ (uint64_t)(pass * 4 + round) << 40) & mask);
            left = right;
            right = next;
        }
        i = left << half_bits | right;
    } while (i >= n);
    return i;
}

static void sequential_pass(uint64_t *table, uint64_t first, uint64_t end, int pass) {
    for (uint64_t w = first * WORDS; w < end * WORDS; w += LINE_WORDS) table[w] = changed(table[w], pass);
}

static int half_bits_of(uint64_t pages) {
    int half_bits = 1;
    while (1ULL << 2 * half_bits < pages) half_bits++;
    return half_bits;
}

static void random_pass(uint64_t *table, uint64_t first, uint64_t end, int pass) {
    int half_bits = half_bits_of(end - first);
    for (uint64_t i = 0; i < end - first; i++) {
        uint64_t page = first + shuffled(i, end - first, half_bits, pass), w = page * WORDS + word_of(page);
        table[w] = changed(table[w], pass);
    }
}

/* Visits all of the table in an order of this thread's own; returns the number of words that were not as made. */
static uint64_t shared_pass(uint64_t *table, uint64_t pages, int order, int update) {
    int half_bits = half_bits_of(pages);
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < pages; i++) {
        uint64_t page = shuffled(i, pages, half_bits, order), w = page * WORDS + word_of(page);
        if (update)
            __atomic_fetch_add(&table[w], 1, __ATOMIC_RELAXED);
        else
            wrong += table[w] != first_value(w);
    }
    return wrong;
}

/* Returns the value of word `w` after all passes of all threads. */
static uint64_t expected(uint64_t w, enum pattern pattern, int passes, int threads) {
    uint64_t value = first_value(w);
    int is_visited = pattern == SEQUENTIAL ? w % LINE_WORDS == 0 : w % WORDS == word_of(w / WORDS);
    if (!is_visited || pattern == LOOK) return value;
    if (pattern == UPDATE) return value + (uint64_t)passes * (uint64_t)threads;
    for (int pass = 0; pass < passes; pass++) value = changed(value, pass);
    return value;
}

static void usage(const char *name) {
    fprintf(stderr, "usage: %s S|W|A|B|C [--pattern sequential|random|look|update] [--passes N] [--megabytes M]\n", name);
    exit(2);
}

int main(int argc, char **argv) {
    enum pattern pattern = SEQUENTIAL;
    int megabytes = 0, kept = 0;
    for (int i = 0; i < argc; i++) {
        if (!strcmp(argv[i], "--pattern") && i + 1 < argc) {
            i++;
            pattern = SEQUENTIAL;
            while (pattern <= UPDATE && strcmp(argv[i], patterns[pattern])) pattern++;
            if (pattern > UPDATE) usage(argv[0]);
        } else if (!strcmp(argv[i], "--megabytes") && i + 1 < argc) {
            megabytes = atoi(argv[++i]);
            if (megabytes < 1 || megabytes > 1 << 20) usage(argv[0]);
        } else if (!strcmp(argv[i], "--passes")) {
            argv[kept++] = "--iterations";
        } else {
            argv[kept++] = argv[i];
        }
    }
    program_options o = program_parse(kept, argv);
    const sweep_class *c = classes;
    while (c->name != o.class_) c++;
    int passes = o.iterations ? o.iterations : c->passes;
    uint64_t pages = (uint64_t)(megabytes ? megabytes : c->megabytes) << 8;
    uint64_t *table = aligned_alloc(PAGE, pages * PAGE);
    if (!table) {
        fprintf(stderr, "sweep: no memory for a table of %llu MiB\n", (unsigned long long)(pages >> 8));
        return 1;
    }

    double slowest = 0.0;
    uint64_t sum = 0, wrong = 0;
    int threads = 1;
#pragma omp parallel reduction(max : slowest) reduction(+ : sum, wrong)
    {
        uint64_t n = (uint64_t)omp_get_num_threads(), me = (uint64_t)omp_get_thread_num();
        uint64_t first = pages * me / n, end = pages * (me + 1) / n;
#pragma omp single
        threads = (int)n;
        for (uint64_t w = first * WORDS; w < end * WORDS; w++) table[w] = first_value(w);
#pragma omp barrier
        double start = program_seconds();
        for (int pass = 0; pass < passes; pass++) {
            if (pattern == SEQUENTIAL)
                sequential_pass(table, first, end, pass);
            else if (pattern == RANDOM)
                random_pass(table, first, end, pass);
            else
                wrong += shared_pass(table, pages, pass * (int)n + (int)me, pattern == UPDATE);
        }
        slowest = program_seconds() - start;
#pragma omp barrier
        for (uint64_t w = first * WORDS; w < end * WORDS; w++) {
            wrong += table[w] != expected(w, pattern, passes, (int)n);
            sum += mix(table[w] ^ w);
        }
    }
    free(table);
    printf("Sweep class %c: %s, %llu pages of 4K, %d passes, %d threads\n", c->name, patterns[pattern],
           (unsigned long long)pages, passes, threads);
    double visits = (double)pages * passes * (pattern >= LOOK ? threads : 1);
    printf("Microseconds a page: %.3f\n", 1e6 * slowest / visits);
    return program_verdict(sum, slowest, 1, wrong == 0, (double)wrong, 0.0, passes, c->passes);
}
