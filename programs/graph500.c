/* Graph500's breadth-first search, written to its specification (kernels 1 and 2, and the five checks of a search).
 * Memory layout, all on the heap, vertices 64 bits wide as the specification's labels need: the edge list (16 edges
 * of 16 bytes a vertex, made once, read in order by each validation), the graph in compressed rows (half as much for
 * each direction of an edge, read a row at a time, rows at random), and four arrays of one entry a vertex.
 *
 * A Kronecker graph of 2^scale vertices is made and searched from several roots. --iterations N searches from N.
 * A search's own checks hold for any N. Which of its possible parents a vertex gets is a race, so the checksum is
 * over the levels, which no race changes.
 */
#include "program.h"

#define EDGE_FACTOR 16
#define INITIATOR_A 0.57
#define INITIATOR_B 0.19
#define INITIATOR_C 0.19
#define LOCAL_QUEUE 1024 /* vertices a thread gathers before it takes room in the shared queue */

typedef struct {
    char name;
    int scale, roots;
} graph_class;

static const graph_class classes[] = {{'S', 10, 64}, {'W', 14, 64}, {'A', 17, 16}, {'B', 20, 4}, {'C', 22, 4}};

typedef struct {
    int64_t v[2];
} edge;

typedef struct {
    int scale;
    int64_t vertices, edges;
    edge *list;
    int64_t *row_start, *row_end, *neighbour; /* row v is [row_start[v], row_end[v]) of `neighbour` */
    int64_t *parent, *queue;
    int32_t *level;
    unsigned char *joined;
} graph;

static void *allocate(size_t bytes) {
    void *p = malloc(bytes);
    if (!p) {
        fprintf(stderr, "graph500: no memory for %zu bytes\n", bytes);
        exit(1);
    }
    return p;
}

/* A random number that is a function of its counter alone (SplitMix64's finaliser), so that any thread can make any
 * edge. */
static inline uint64_t random_at(uint64_t counter) {
    uint64_t h = (counter + 1) * 0x9e3779b97f4a7c15ULL;
    h = (h ^ h >> 30) * 0xbf58476d1ce4e5b9ULL;
    h = (h ^ h >> 27) * 0x94d049bb133111ebULL;
    return h ^ h >> 31;
}

/* A permutation of the numbers of `bits` bits: odd factors and right shifts lose nothing. */
static inline uint64_t permute(uint64_t v, int bits, uint64_t key) {
    uint64_t mask = (1ULL << bits) - 1;
    for (uint64_t round = 0; round < 4; round++) {
        uint64_t r = random_at(~(4 * key + round));
        v = (v * (r | 1) + (r >> 32)) & mask;
        v ^= v >> (bits / 2);
    }
    return v;
}

/* The edge list. Labels are permuted, as the specification asks, so that a label says nothing of the degree; the
 * edges' order need not be, as each is drawn independently. */
static void make_edges(graph *g) {
    const double to_bits = 0x1p32;
    const uint64_t upper = (uint64_t)(to_bits * (INITIATOR_A + INITIATOR_B));
    const uint64_t left[2] = {(uint64_t)(to_bits * INITIATOR_A / (INITIATOR_A + INITIATOR_B)),
                              (uint64_t)(to_bits * INITIATOR_C / (1.0 - (INITIATOR_A + INITIATOR_B)))};
#pragma omp parallel for schedule(static)
    for (int64_t e = 0; e < g->edges; e++) {
        uint64_t from = 0, to = 0;
        for (int bit = 0; bit < g->scale; bit++) {
            uint64_t r = random_at((uint64_t)e * 64 + (uint64_t)bit);
            int lower = r >> 32 >= upper, right = (r & 0xffffffff) >= left[lower];
            from |= (uint64_t)lower << bit;
            to |= (uint64_t)right << bit;
        }
        g->list[e].v[0] = (int64_t)permute(from, g->scale, 0);
        g->list[e].v[1] = (int64_t)permute(to, g->scale, 0);
    }
}

static void sort(int64_t *a, int64_t n) {
    while (n > 24) {
        int64_t x = a[0], y = a[n / 2], z = a[n - 1];
        int64_t pivot = x < y ? (y < z ? y : x < z ? z : x) : (x < z ? x : y < z ? z : y), i = 0, j = n - 1;
        for (;; i++, j--) {
            while (a[i] < pivot) i++;
            while (a[j] > pivot) j--;
            if (i >= j) break;
            int64_t t = a[i];
            a[i] = a[j];
            a[j] = t;
        }
        /* Everything before i is at most the pivot, everything from i on at least. */
        if (i < n - i) {
            sort(a, i);
            a += i, n -= i;
        } else {
            sort(a + i, n - i);
            n = i;
        }
    }
    for (int64_t i = 1; i < n; i++) {
        int64_t v = a[i], j = i;
        for (; j > 0 && a[j - 1] > v; j--) a[j] = a[j - 1];
        a[j] = v;
    }
}

/* Kernel 1: the graph from the edge list, without self-loops. Threads race to place the edges; sorting the rows puts
 * them in one order whatever happened, and brings together the duplicates, which are dropped. */
static void make_graph(graph *g) {
    int64_t *start = g->row_start, *end = g->row_end;
#pragma omp parallel for schedule(static)
    for (int64_t v = 0; v < g->vertices; v++) end[v] = 0;
#pragma omp parallel for schedule(static)
    for (int64_t e = 0; e < g->edges; e++) {
        int64_t from = g->list[e].v[0], to = g->list[e].v[1];
        if (from == to) continue;
#pragma omp atomic
        end[from]++;
#pragma omp atomic
        end[to]++;
    }
    int64_t total = 0;
    for (int64_t v = 0; v < g->vertices; v++) {
        start[v] = total;
        total += end[v];
        end[v] = start[v];
    }
    g->neighbour = allocate((size_t)total * sizeof *g->neighbour);
#pragma omp parallel for schedule(static)
    for (int64_t e = 0; e < g->edges; e++) {
        if (g->list[e].v[0] == g->list[e].v[1]) continue;
        for (int side = 0; side < 2; side++) {
            int64_t at;
#pragma omp atomic capture
            at = end[g->list[e].v[side]]++;
            g->neighbour[at] = g->list[e].v[1 - side];
        }
    }
#pragma omp parallel for schedule(dynamic, 256)
    for (int64_t v = 0; v < g->vertices; v++) {
        int64_t *row = &g->neighbour[start[v]], n = end[v] - start[v], kept = 0;
        sort(row, n);
        for (int64_t i = 0; i < n; i++)
            if (!kept || row[kept - 1] != row[i]) row[kept++] = row[i];
        end[v] = start[v] + kept;
    }
}

/* Moves a thread's gathered vertices to the end of the shared queue. */
static void flush(graph *g, int64_t *tail, const int64_t *local, int64_t count) {
    int64_t at;
#pragma omp atomic capture
    {
        at = *tail;
        *tail += count;
    }
    memcpy(&g->queue[at], local, (size_t)count * sizeof *local);
}

/* Kernel 2: level by level. A vertex belongs to whichever thread first writes its parent. */
static void search(graph *g, int64_t root) {
    int64_t *parent = g->parent, begin = 0, end = 1, tail = 1;
#pragma omp parallel for schedule(static)
    for (int64_t v = 0; v < g->vertices; v++) parent[v] = -1;
    parent[root] = g->queue[0] = root;
#pragma omp parallel
    {
        int64_t local[LOCAL_QUEUE], count = 0;
        while (begin < end) {
#pragma omp for schedule(dynamic, 64) nowait
            for (int64_t at = begin; at < end; at++) {
                int64_t from = g->queue[at];
                for (int64_t n = g->row_start[from]; n < g->row_end[from]; n++) {
                    int64_t to = g->neighbour[n], none = -1;
                    if (__atomic_load_n(&parent[to], __ATOMIC_RELAXED) >= 0) continue;
                    if (!__atomic_compare_exchange_n(&parent[to], &none, from, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
                        continue;
                    if (count == LOCAL_QUEUE) {
                        flush(g, &tail, local, count);
                        count = 0;
                    }
                    local[count++] = to;
                }
            }
            flush(g, &tail, local, count);
            count = 0;
#pragma omp barrier
#pragma omp single
            {
                begin = end;
                end = tail;
            }
        }
    }
}

/* The specification's five checks of `parent`; returns the number of the first that fails, or 0. Leaves the levels in
 * `level` and counts the input edges within the component, which is what a search is said to traverse. */
static int validate(graph *g, int64_t root, int64_t *traversed) {
    int64_t n = g->vertices, *parent = g->parent;
    int32_t *level = g->level;
    int bad1 = parent[root] != root, bad2 = 0, bad3 = 0, bad4 = 0, bad5 = 0;

    /* 1: a tree. Levels go down from the root, one a round; what has a parent but gets none is on a cycle. */
#pragma omp parallel for schedule(static) reduction(| : bad1)
    for (int64_t v = 0; v < n; v++) {
        level[v] = v == root ? 0 : -1;
        g->joined[v] = v == root;
        bad1 |= parent[v] < -1 || parent[v] >= n || (parent[v] == v && v != root);
    }
    if (bad1) return 1;
    int64_t found = 1;
    for (int32_t round = 1; found; round++) {
        found = 0;
#pragma omp parallel for schedule(static) reduction(+ : found)
        for (int64_t v = 0; v < n; v++) {
            if (parent[v] < 0 || level[v] >= 0) continue;
            /* Another thread may be writing this round's number there; that is not the one looked for. */
            if (__atomic_load_n(&level[parent[v]], __ATOMIC_RELAXED) != round - 1) continue;
            __atomic_store_n(&level[v], round, __ATOMIC_RELAXED);
            found++;
        }
    }

    int64_t inside = 0;
#pragma omp parallel for schedule(static) reduction(+ : inside) reduction(| : bad3, bad4)
    for (int64_t e = 0; e < g->edges; e++) {
        int64_t a = g->list[e].v[0], b = g->list[e].v[1];
        bad4 |= (level[a] < 0) != (level[b] < 0);
        if (level[a] < 0 || level[b] < 0) continue;
        inside++;
        bad3 |= abs(level[a] - level[b]) > 1;
        if (parent[a] == b) __atomic_store_n(&g->joined[a], 1, __ATOMIC_RELAXED);
        if (parent[b] == a) __atomic_store_n(&g->joined[b], 1, __ATOMIC_RELAXED);
    }
#pragma omp parallel for schedule(static) reduction(| : bad1, bad2, bad5)
    for (int64_t v = 0; v < n; v++) {
        if (parent[v] < 0) continue;
        bad1 |= level[v] < 0;
        bad2 |= v != root && level[v] != level[parent[v]] + 1;
        bad5 |= !g->joined[v];
    }
    *traversed = inside;
    if (bad1) return 1;
    if (bad2) return 2; /* a tree edge that does not go down one level */
    if (bad3) return 3; /* an input edge that spans more than one */
    if (bad4) return 4; /* an input edge that leaves the tree, so that it does not span its component */
    if (bad5) return 5; /* a tree edge that is not in the input */
    return 0;
}

int main(int argc, char **argv) {
    program_options o = program_parse(argc, argv);
    const graph_class *c = classes;
    while (c->name != o.class_) c++;
    int roots = o.iterations ? o.iterations : c->roots;

    graph g = {.scale = c->scale, .vertices = 1LL << c->scale, .edges = (int64_t)EDGE_FACTOR << c->scale};
    size_t words = (size_t)g.vertices * sizeof(int64_t);
    g.list = allocate((size_t)g.edges * sizeof *g.list);
    double start = program_seconds();
    make_edges(&g);
    double made = program_seconds();
    g.row_start = allocate(words);
    g.row_end = allocate(words);
    make_graph(&g);
    printf("Graph500 class %c: scale %d, %lld edges, drawn in %.3f s, graph made in %.3f s\n", c->name, c->scale,
           (long long)g.edges, made - start, program_seconds() - made);
    g.parent = allocate(words);
    g.queue = allocate(words);
    g.level = allocate((size_t)g.vertices * sizeof *g.level);
    g.joined = allocate((size_t)g.vertices);

    uint64_t checksum = PROGRAM_CHECKSUM_SEED;
    double seconds = 0.0, seconds_per_edge = 0.0;
    int searched = 0, failed = 0;
    /* Roots are distinct, random, and have an edge. A small graph may have fewer than are asked for. */
    for (int64_t i = 0; i < g.vertices && searched < roots && !failed; i++) {
        int64_t root = (int64_t)permute((uint64_t)i, g.scale, 1), traversed = 0;
        if (g.row_start[root] == g.row_end[root]) continue;
        start = program_seconds();
        search(&g, root);
        double elapsed = program_seconds() - start;
        failed = validate(&g, root, &traversed);
        checksum = program_checksum(checksum, g.level, (size_t)g.vertices * sizeof *g.level);
        printf("Root %lld: %lld edges in %.6f s, %.4e TEPS\n", (long long)root, (long long)traversed, elapsed,
               (double)traversed / elapsed);
        seconds += elapsed;
        if (traversed) seconds_per_edge += elapsed / (double)traversed;
        searched++;
    }
    free(g.list), free(g.row_start), free(g.row_end), free(g.neighbour);
    free(g.parent), free(g.queue), free(g.level), free(g.joined);
    if (failed) printf("Check %d fails\n", failed);
    printf("TEPS (harmonic mean of %d): %.4e\n", searched, searched / seconds_per_edge);
    return program_verdict(checksum, seconds, 1, !failed, failed, 0.0, roots, c->roots);
}
