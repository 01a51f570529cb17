/* A graph is built with atomic counters, which are all over memory, and its components are found by label propagation: pages that
 * every thread writes at every step. The counters and the labels are verified against serial ones. ARGV[1] is the number of
 * vertices; with a second argument the graph is built so often more. */
#include "check.h"
#include "spin.h"

enum { DEGREE = 8 };

static long n, edges;
static unsigned *from, *to, *neighbour, *label;
static long *degree, *start, *next;

static void build(void) {
#pragma omp parallel for
    for (long v = 0; v < n; v++)
        degree[v] = 0;
#pragma omp parallel for
    for (long e = 0; e < edges; e++) {
#pragma omp atomic
        degree[from[e]]++;
#pragma omp atomic
        degree[to[e]]++;
    }
    for (long v = 0; v < n; v++)
        start[v + 1] = start[v] + degree[v];
    for (long v = 0; v < n; v++)
        next[v] = start[v];
#pragma omp parallel for schedule(dynamic, 64)
    for (long e = 0; e < edges; e++) {
        long at;
#pragma omp atomic capture
        at = next[from[e]]++;
        neighbour[at] = to[e];
#pragma omp atomic capture
        at = next[to[e]]++;
        neighbour[at] = from[e];
    }
}

static void propagate(void) {
#pragma omp parallel for
    for (long v = 0; v < n; v++)
        label[v] = (unsigned)v;
    for (int changed = 1; changed;) {
        changed = 0;
#pragma omp parallel for schedule(dynamic, 64) reduction(| : changed)
        for (long v = 0; v < n; v++) {
            unsigned least = __atomic_load_n(&label[v], __ATOMIC_RELAXED), own = least;
            for (long k = start[v]; k < start[v + 1]; k++) {
                unsigned other = __atomic_load_n(&label[neighbour[k]], __ATOMIC_RELAXED);
                least = other < least ? other : least;
            }
            while (least < own && !__atomic_compare_exchange_n(&label[v], &own, least, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
                ;
            changed |= least < own;
        }
    }
}

static unsigned root(unsigned *parent, unsigned v) {
    while (parent[v] != v)
        v = parent[v] = parent[parent[v]];
    return v;
}

int main(int argc, char **argv) {
    n = size_of(argc, argv, 4000);
    edges = n * DEGREE / 2;
    from = malloc((size_t)edges * sizeof *from);
    to = malloc((size_t)edges * sizeof *to);
    for (long e = 0; e < edges; e++) {
        /* Even and odd vertices are not connected. */
        from[e] = (unsigned)(mixed((unsigned long)e) % (unsigned long)n);
        to[e] = (unsigned)(mixed((unsigned long)e + 1000003) % (unsigned long)n / 2 * 2) + from[e] % 2;
        if (to[e] >= n)
            to[e] = from[e];
    }
    neighbour = malloc((size_t)edges * 2 * sizeof *neighbour);
    label = malloc((size_t)n * sizeof *label);
    degree = malloc((size_t)n * sizeof *degree);
    start = calloc((size_t)n + 1, sizeof *start);
    next = malloc((size_t)n * sizeof *next);
    for (int times = argc > 2 ? atoi(argv[2]) : 1; times > 0; times--)
        build();
    long *expected = calloc((size_t)n, sizeof *expected);
    unsigned *parent = malloc((size_t)n * sizeof *parent);
    for (long v = 0; v < n; v++)
        parent[v] = (unsigned)v;
    for (long e = 0; e < edges; e++) {
        expected[from[e]]++, expected[to[e]]++;
        unsigned a = root(parent, from[e]), b = root(parent, to[e]);
        parent[a < b ? b : a] = a < b ? a : b;
    }
    for (long v = 0; v < n; v++) {
        CHECK(degree[v] == expected[v]);
        CHECK(next[v] == start[v + 1]);
    }
    propagate();
    for (long v = 0; v < n; v++)
        CHECK(label[v] == root(parent, (unsigned)v));
    return result();
}
