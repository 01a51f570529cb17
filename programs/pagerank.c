/* PageRank of a Kronecker graph: each vertex pulls from those that point to it what they have divided among their edges.
 *
 * Memory layout, all on the heap: `edges`, pairs in random order, is made first; from it come `begins` and `sources`, the
 * sources of each vertex' edges one vertex after another, and `edges` is freed, which is twice as large. A step streams
 * through `begins` and `sources` and reads `share` at random, most often at the few vertices with many edges; it writes
 * `rank` in order. Then each vertex' share is made anew from its rank and its `degree`, the number of edges that leave it.
 *
 * Verified: all ranks add up to 1 after each step, to 1e-11, and a step changes them by at most 0.85 of what the step before
 * did. The last step is checked by edges that are made again: the ranks, each times a random weight, add up to what the
 * edges bring, to 1e-10. --iterations N does N steps.
 */
#include "program.h"

#include <math.h>

#define EDGES_A_VERTEX 16
#define QUARTERS 65536
#define BLOCK 1024 /* vertices whose sums are one thread's */
#define DAMPING 0.85
#define TOLERANCE_SUM 1e-11
#define TOLERANCE_LAST 1e-10

typedef struct {
    char name;
    int scale, steps;
} pagerank_class;

static const pagerank_class classes[] = {{'S', 13, 10}, {'W', 17, 20}, {'A', 19, 20}, {'B', 21, 20}, {'C', 23, 20}};

typedef struct {
    uint32_t from, to;
} edge;

/* By 16 random bits: four levels' quarters, two bits each. */
static uint8_t quarters[QUARTERS];
static size_t vertices, edge_count;
static int scale;
static uint64_t *begins;
static uint32_t *sources, *degree;
static double *rank, *share, *sums;

/* Gives vertices other numbers, so that those with many edges lie apart. */
static inline uint32_t renumbered(uint64_t v) {
    uint64_t mask = vertices - 1;
    for (int round = 0; round < 2; round++) {
        v = (v * 0x9e3779b1u + 0x7f4a7c15u) & mask;
        v ^= v >> (scale / 2 + 1);
    }
    return (uint32_t)v;
}

/* Fills the table of quarters: each entry has four levels' quarters, and takes as much of the table as its chance is, where
 * a level's quarters have chances of 0.57, 0.19, 0.19 and 0.05. */
static void make_quarters(void) {
    static const double chances[4] = {0.57, 0.19, 0.19, 0.05};
    double end = 0.0;
    size_t filled = 0;
    for (unsigned q = 0; q < 256; q++) {
        end += chances[q & 3] * chances[q >> 2 & 3] * chances[q >> 4 & 3] * chances[q >> 6];
        for (; filled < end * QUARTERS - 0.5; filled++) quarters[filled] = (uint8_t)q;
    }
    for (; filled < QUARTERS; filled++) quarters[filled] = 0;
}

/* Returns edge i: at each level it is in one of four quarters of the matrix. */
static edge make_edge(size_t i) {
    uint64_t from = 0, to = 0, bits = 0;
    int done = 0;
    for (; done < scale; done += 4, bits >>= 16) {
        if (done % 16 == 0) bits = program_mix(2 * i + done / 16);
        unsigned q = quarters[bits % QUARTERS];
        from = from << 4 | (q & 1) | (q >> 1 & 2) | (q >> 2 & 4) | (q >> 3 & 8);
        to = to << 4 | (q >> 1 & 1) | (q >> 2 & 2) | (q >> 3 & 4) | (q >> 4 & 8);
    }
    return (edge){renumbered(from >> (done - scale)), renumbered(to >> (done - scale))};
}

static int in_order(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Sorts the sources of a vertex, so that their order does not depend on the threads. */
static void sort_sources(uint32_t *list, size_t n) {
    if (n > 32) {
        qsort(list, n, sizeof *list, in_order);
        return;
    }
    for (size_t i = 1; i < n; i++) {
        uint32_t moved = list[i];
        size_t at = i;
        for (; at > 0 && list[at - 1] > moved; at--) list[at] = list[at - 1];
        list[at] = moved;
    }
}

/* Makes the list of edges, and from it the graph. */
static void make_graph(void) {
    edge *edges = program_allocated(edge_count, sizeof *edges);
    begins = program_allocated(vertices + 2, sizeof *begins), degree = program_allocated(vertices, sizeof *degree);
    memset(begins, 0, (vertices + 2) * sizeof *begins), memset(degree, 0, vertices * sizeof *degree);
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < edge_count; i++) {
        edges[i] = make_edge(i);
#pragma omp atomic
        begins[edges[i].to + 2]++;
#pragma omp atomic
        degree[edges[i].from]++;
    }
    /* While edges are put in their places, the next place of vertex v is at v + 1; at the end the next vertex begins there. */
    for (size_t v = 2; v < vertices + 2; v++) begins[v] += begins[v - 1];
    sources = program_allocated(edge_count, sizeof *sources);
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < edge_count; i++) {
        uint64_t place;
#pragma omp atomic capture
        place = begins[edges[i].to + 1]++;
        sources[place] = edges[i].from;
    }
    free(edges);
#pragma omp parallel for schedule(static)
    for (size_t v = 0; v < vertices; v++) sort_sources(sources + begins[v], begins[v + 1] - begins[v]);
}

/* Adds the blocks' sums in order. */
static double total(void) {
    double sum = 0.0;
    for (size_t b = 0; b < vertices / BLOCK; b++) sum += sums[b];
    return sum;
}

/* Divides each vertex' rank among its edges; returns the rank of vertices without any. */
static double divide(void) {
#pragma omp parallel for schedule(static)
    for (size_t b = 0; b < vertices / BLOCK; b++) {
        sums[b] = 0.0;
        for (size_t v = b * BLOCK; v < (b + 1) * BLOCK; v++) {
            share[v] = degree[v] ? rank[v] / degree[v] : 0.0;
            if (!degree[v]) sums[b] += rank[v];
        }
    }
    return total();
}

/* Pulls each vertex' rank, with `base` for every vertex; returns how much ranks changed. */
static double pull(double base) {
#pragma omp parallel for schedule(static)
    for (size_t b = 0; b < vertices / BLOCK; b++) {
        sums[b] = 0.0;
        for (size_t v = b * BLOCK; v < (b + 1) * BLOCK; v++) {
            double pulled = 0.0;
            for (uint64_t e = begins[v]; e < begins[v + 1]; e++) pulled += share[sources[e]];
            double now = base + DAMPING * pulled;
            sums[b] += fabs(now - rank[v]);
            rank[v] = now;
        }
    }
    return total();
}

/* Adds the ranks, each times its weight: 1, or a random one. */
static double add_ranks(int random) {
#pragma omp parallel for schedule(static)
    for (size_t b = 0; b < vertices / BLOCK; b++) {
        sums[b] = 0.0;
        for (size_t v = b * BLOCK; v < (b + 1) * BLOCK; v++) sums[b] += random ? rank[v] * program_random(~v) : rank[v];
    }
    return total();
}

/* Returns what the ranks with random weights should add up to: what all edges, made again, bring, and `base`. */
static double add_edges(double base) {
    size_t in_block = edge_count / (vertices / BLOCK);
#pragma omp parallel for schedule(static)
    for (size_t b = 0; b < vertices / BLOCK; b++) {
        sums[b] = 0.0;
        for (size_t v = b * BLOCK; v < (b + 1) * BLOCK; v++) sums[b] += base * program_random(~v);
        for (size_t i = b * in_block; i < (b + 1) * in_block; i++) {
            edge e = make_edge(i);
            sums[b] += DAMPING * share[e.from] * program_random(~(size_t)e.to);
        }
    }
    return total();
}

int main(int argc, char **argv) {
    program_options o = program_parse(argc, argv);
    const pagerank_class *c = classes;
    while (c->name != o.class_) c++;
    int steps = o.iterations ? o.iterations : c->steps;

    scale = c->scale, vertices = (size_t)1 << scale, edge_count = EDGES_A_VERTEX * vertices;
    make_quarters();
    make_graph();
    rank = program_allocated(vertices, sizeof *rank), share = program_allocated(vertices, sizeof *share);
    sums = program_allocated(vertices / BLOCK, sizeof *sums);
#pragma omp parallel for schedule(static)
    for (size_t v = 0; v < vertices; v++) rank[v] = 1.0 / (double)vertices;
    printf("PageRank class %c: %zu vertices, %zu edges, %d steps\n", c->name, vertices, edge_count, steps);

    double start = program_seconds();
    double base = 0.0, change = 0.0, last_change = INFINITY, off = 0.0;
    int smaller = 1;
    for (int s = 0; s < steps; s++, last_change = change) {
        base = (1.0 - DAMPING + DAMPING * divide()) / (double)vertices;
        change = pull(base);
        smaller &= change <= DAMPING * last_change + 1e-13;
        off = fmax(off, fabs(add_ranks(0) - 1.0));
    }
    double seconds = program_seconds() - start;

    double got = add_ranks(1), expected = add_edges(base), off_last = fabs(got / expected - 1.0);
    printf("Last change: %.3e, sums off by at most %.3e, last step by %.3e\n", change, off, off_last);
    uint64_t sum = program_checksum_rows(rank, vertices / BLOCK, BLOCK * sizeof *rank);
    free(sums), free(share), free(rank), free(degree), free(sources), free(begins);
    if (!smaller) fprintf(stderr, "pagerank: a step changed the ranks more than %g of the step before\n", DAMPING);
    int ok = smaller && off <= TOLERANCE_SUM && off_last <= TOLERANCE_LAST;
    /* Ranks are verified after any number of steps. */
    return program_verdict(sum, seconds, 1, ok, got, expected, steps, c->steps);
}
