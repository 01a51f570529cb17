/* Mergesort: numbers are sorted by tasks that sort halves and tasks that merge them.
 *
 * Memory layout: `keys` and `space`, two arrays of as many numbers on the heap. A task sorts one half of its part and another task
 * the other; then both halves are merged into the other array, by tasks as well: the middle of the longer half is looked up in the
 * shorter, and what lies below and above is merged apart. So every level of the recursion reads one array from end to end and writes
 * the other. Below 8192 numbers a task sorts alone, and merges alone below 65536.
 *
 * Verified: the numbers are in order, and the sum of a hash of each is what it was before. --iterations N sorts N times, other
 * numbers each time.
 */
#include "program.h"

#define SORTED_ALONE 8192
#define MERGED_ALONE 65536
#define INSERTED 24

typedef struct {
    char name;
    int log_keys, rounds;
} mergesort_class;

static const mergesort_class classes[] = {{'S', 16, 1}, {'W', 20, 1}, {'A', 23, 1}, {'B', 25, 1}, {'C', 27, 1}};

/* Sorts `n` keys in place: quicksort by the median of three, the smaller side first, and insertion at the end. */
static void sort_alone(uint64_t *keys, size_t n) {
    while (n > INSERTED) {
        uint64_t a = keys[0], b = keys[n / 2], c = keys[n - 1];
        uint64_t pivot = a < b ? (b < c ? b : a < c ? c : a) : (a < c ? a : b < c ? c : b);
        size_t low = 0, high = n - 1;
        for (;; low++, high--) {
            while (keys[low] < pivot) low++;
            while (keys[high] > pivot) high--;
            if (low >= high) break;
            uint64_t t = keys[low];
            keys[low] = keys[high];
            keys[high] = t;
        }
        size_t left = high + 1;
        if (left < n - left) {
            sort_alone(keys, left);
            keys += left, n -= left;
        } else {
            sort_alone(keys + left, n - left);
            n = left;
        }
    }
    for (size_t i = 1; i < n; i++) {
        uint64_t key = keys[i];
        size_t j = i;
        for (; j > 0 && keys[j - 1] > key; j--) keys[j] = keys[j - 1];
        keys[j] = key;
    }
}

/* Returns how many of the `n` keys in order are below `key`. */
static size_t below(const uint64_t *keys, size_t n, uint64_t key) {
    size_t from = 0;
    while (n > 0) {
        size_t half = n / 2;
        if (keys[from + half] < key) {
            from += half + 1;
            n -= half + 1;
        } else {
            n = half;
        }
    }
    return from;
}

static void merge(uint64_t *out, const uint64_t *a, size_t of_a, const uint64_t *b, size_t of_b) {
    if (of_a + of_b <= MERGED_ALONE) {
        size_t i = 0, j = 0, to = 0;
        while (i < of_a && j < of_b) out[to++] = b[j] < a[i] ? b[j++] : a[i++];
        memcpy(out + to, a + i, (of_a - i) * sizeof *out);
        memcpy(out + to + (of_a - i), b + j, (of_b - j) * sizeof *out);
        return;
    }
    if (of_a < of_b) {
        const uint64_t *t = a;
        size_t n = of_a;
        a = b, of_a = of_b;
        b = t, of_b = n;
    }
    size_t half = of_a / 2, other = below(b, of_b, a[half]);
#pragma omp task
    merge(out, a, half, b, other);
#pragma omp task
    merge(out + half + other, a + half, of_a - half, b + other, of_b - other);
#pragma omp taskwait
}

/* Sorts `n` keys, and leaves them in `space` if `there`, else where they are. */
static void sort(uint64_t *keys, uint64_t *space, size_t n, int there) {
    if (n <= SORTED_ALONE) {
        sort_alone(keys, n);
        if (there) memcpy(space, keys, n * sizeof *keys);
        return;
    }
    size_t half = n / 2;
#pragma omp task
    sort(keys, space, half, !there);
#pragma omp task
    sort(keys + half, space + half, n - half, !there);
#pragma omp taskwait
    const uint64_t *from = there ? keys : space;
    merge(there ? space : keys, from, half, from + half, n - half);
}

int main(int argc, char **argv) {
    program_options o = program_parse(argc, argv);
    const mergesort_class *c = classes;
    while (c->name != o.class_) c++;
    int rounds = o.iterations ? o.iterations : c->rounds;
    size_t n = (size_t)1 << c->log_keys;

    uint64_t *keys = program_allocated(n, sizeof *keys), *space = program_allocated(n, sizeof *space);
    printf("Mergesort class %c: %zu numbers, %d times\n", c->name, n, rounds);

    double seconds = 0.0;
    uint64_t wrong = 0;
    for (int r = 0; r < rounds; r++) {
        uint64_t before = 0, after = 0, unordered = 0;
#pragma omp parallel for schedule(static) reduction(+ : before)
        for (size_t i = 0; i < n; i++) {
            keys[i] = program_mix(program_mix(i) + (uint64_t)r);
            before += program_mix(keys[i]);
        }
        double start = program_seconds();
#pragma omp parallel
#pragma omp single
        sort(keys, space, n, 0);
        seconds += program_seconds() - start;
#pragma omp parallel for schedule(static) reduction(+ : after, unordered)
        for (size_t i = 0; i < n; i++) {
            after += program_mix(keys[i]);
            unordered += i > 0 && keys[i - 1] > keys[i];
        }
        wrong += unordered + (after != before);
    }

    printf("Out of order or lost: %llu\n", (unsigned long long)wrong);
    size_t row = 4096;
    uint64_t sum = program_checksum_rows(keys, n / row, row * sizeof *keys);
    free(space);
    free(keys);
    /* Each round is verified, whatever their number. */
    return program_verdict(sum, seconds, 1, wrong == 0, (double)wrong, 0.0, rounds, c->rounds);
}
