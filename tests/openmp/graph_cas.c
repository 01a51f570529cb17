/* Graph kernels in the manner of the GAP benchmarks, whose threads agree by compare and swap alone: breadth-first search,
 * connected components by Shiloach and Vishkin's hooking and by Afforest's, shortest paths by buckets of distance. Verified
 * against serial algorithms of other kinds. ARGV[1] is the number of vertices. */
#include "check.h"
#include "spin.h"
#include <string.h>

enum { DEGREE = 6, MOST_WEIGHT = 20, DELTA = 8, FAR = 1 << 30 };

static int n, edges;
static int *start, *neighbour, *weight; /* compressed rows, each edge in both directions */

static int other_end(int v, int k) {
    unsigned long x = mixed((unsigned long)v * DEGREE + (unsigned long)k);
    /* A tenth of the vertices stay by themselves or in pairs; the rest divide in two halves. */
    if (v % 10 == 0)
        return k == 0 && v % 20 == 0 && v + 10 < n ? v + 10 : v;
    int w = (int)(x % (unsigned long)n);
    w -= (w - v) % 2;
    return w < 0 || w >= n || w % 10 == 0 ? v : w;
}

static int weight_of(int v, int w) {
    return 1 + (int)(mixed((unsigned long)(v < w ? v : w) * 1000003 + (unsigned long)(v < w ? w : v)) % MOST_WEIGHT);
}

static void make_graph(void) {
    start = calloc((size_t)n + 2, sizeof *start);
    for (int v = 0; v < n; v++)
        for (int k = 0; k < DEGREE; k++) {
            start[v + 2]++;
            start[other_end(v, k) + 2]++;
        }
    for (int v = 0; v < n; v++)
        start[v + 2] += start[v + 1];
    edges = start[n + 1];
    neighbour = malloc((size_t)edges * sizeof *neighbour);
    weight = malloc((size_t)edges * sizeof *weight);
    for (int v = 0; v < n; v++)
        for (int k = 0; k < DEGREE; k++) {
            int w = other_end(v, k), there = start[v + 1]++, back = start[w + 1]++;
            neighbour[there] = w;
            neighbour[back] = v;
            weight[there] = weight[back] = weight_of(v, w);
        }
}

/* Distances by a queue of vertices whose own has become less; all weights are 1 if `unit`. */
static void serial_distances(int root, int unit, int *distance) {
    int *queue = malloc((size_t)n * sizeof *queue), head = 0, tail = 0;
    char *queued = calloc((size_t)n, 1);
    for (int v = 0; v < n; v++)
        distance[v] = FAR;
    distance[root] = 0;
    queue[tail++] = root;
    queued[root] = 1;
    for (int waiting = 1; waiting > 0; waiting--) {
        int v = queue[head];
        head = (head + 1) % n;
        queued[v] = 0;
        for (int k = start[v]; k < start[v + 1]; k++) {
            int w = neighbour[k], d = distance[v] + (unit ? 1 : weight[k]);
            if (d >= distance[w])
                continue;
            distance[w] = d;
            if (!queued[w]) {
                queue[tail % n] = w;
                tail = tail % n + 1;
                queued[w] = 1;
                waiting++;
            }
        }
    }
    free(queued);
    free(queue);
}

/* A vertex belongs to whoever sets its parent first. */
static void search(int root) {
    int *parent = malloc((size_t)n * sizeof *parent), *level = malloc((size_t)n * sizeof *level);
    int *frontier = malloc((size_t)n * sizeof *frontier), *next = malloc((size_t)n * sizeof *next);
    for (int v = 0; v < n; v++)
        parent[v] = level[v] = -1;
    parent[root] = root;
    level[root] = 0;
    frontier[0] = root;
    int length = 1, depth = 0, found = 1;
    while (length > 0) {
        int next_length = 0;
        depth++;
#pragma omp parallel for schedule(dynamic, 16)
        for (int i = 0; i < length; i++) {
            int v = frontier[i];
            for (int k = start[v]; k < start[v + 1]; k++) {
                int w = neighbour[k], none = -1;
                if (__atomic_load_n(&parent[w], __ATOMIC_RELAXED) >= 0)
                    continue;
                if (__atomic_compare_exchange_n(&parent[w], &none, v, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
                    level[w] = depth;
                    next[__atomic_fetch_add(&next_length, 1, __ATOMIC_RELAXED)] = w;
                }
            }
        }
        int *swap = frontier;
        frontier = next;
        next = swap;
        length = next_length;
        found += length;
    }
    int *distance = malloc((size_t)n * sizeof *distance), reached = 0;
    serial_distances(root, 1, distance);
    for (int v = 0; v < n; v++) {
        reached += distance[v] < FAR;
        CHECK(level[v] == (distance[v] < FAR ? distance[v] : -1));
        if (v == root || parent[v] < 0)
            continue;
        int edge = 0;
        for (int k = start[v]; k < start[v + 1]; k++)
            edge |= neighbour[k] == parent[v];
        CHECK(edge && level[parent[v]] == level[v] - 1);
    }
    CHECK(found == reached);
    free(distance);
    free(next);
    free(frontier);
    free(level);
    free(parent);
}

/* Each vertex's component by its least vertex. */
static void serial_components(int *component) {
    int *stack = malloc((size_t)n * sizeof *stack);
    memset(component, -1, (size_t)n * sizeof *component);
    for (int root = 0; root < n; root++) {
        if (component[root] >= 0)
            continue;
        int top = 0;
        stack[top++] = root;
        component[root] = root;
        while (top > 0) {
            int v = stack[--top];
            for (int k = start[v]; k < start[v + 1]; k++)
                if (component[neighbour[k]] < 0) {
                    component[neighbour[k]] = root;
                    stack[top++] = neighbour[k];
                }
        }
    }
    free(stack);
}

static inline int of(const int *component, int v) { return __atomic_load_n(&component[v], __ATOMIC_RELAXED); }

/* Every vertex points at its root. */
static void compress(int *component) {
#pragma omp parallel for
    for (int v = 0; v < n; v++)
        while (of(component, v) != of(component, of(component, v)))
            __atomic_store_n(&component[v], of(component, of(component, v)), __ATOMIC_RELAXED);
}

/* Roots are hooked onto lesser roots until no edge joins two. */
static void shiloach_vishkin(int *component) {
    for (int changed = 1; changed;) {
        changed = 0;
#pragma omp parallel for reduction(| : changed)
        for (int v = 0; v < n; v++)
            for (int k = start[v]; k < start[v + 1]; k++) {
                int a = of(component, v), b = of(component, neighbour[k]);
                if (a == b)
                    continue;
                int high = a > b ? a : b, low = a > b ? b : a, root = high;
                changed = 1;
                __sync_bool_compare_and_swap(&component[root], high, low);
            }
        compress(component);
    }
}

/* One pass: each edge joins its ends' trees before it is left. */
static void afforest(int *component) {
#pragma omp parallel for schedule(dynamic, 64)
    for (int v = 0; v < n; v++)
        for (int k = start[v]; k < start[v + 1]; k++) {
            int a = of(component, v), b = of(component, neighbour[k]);
            while (a != b) {
                int high = a > b ? a : b, low = a > b ? b : a, above = of(component, high), expected = high;
                if (above == low)
                    break;
                if (above == high && __atomic_compare_exchange_n(&component[high], &expected, low, 0, __ATOMIC_SEQ_CST,
                                                                 __ATOMIC_RELAXED))
                    break;
                a = of(component, of(component, high));
                b = of(component, low);
            }
        }
    compress(component);
}

static void components(void (*algorithm)(int *)) {
    int *component = malloc((size_t)n * sizeof *component), *expected = malloc((size_t)n * sizeof *expected);
    for (int v = 0; v < n; v++)
        component[v] = v;
    algorithm(component);
    serial_components(expected);
    for (int v = 0; v < n; v++)
        CHECK(component[v] == expected[v]);
    free(expected);
    free(component);
}

/* Lowers *at to `value` unless it is lower; true if it did. */
static inline int lower(int *at, int value) {
    int old = __atomic_load_n(at, __ATOMIC_RELAXED);
    while (value < old)
        if (__atomic_compare_exchange_n(at, &old, value, 1, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
            return 1;
    return 0;
}

/* The bucket of distances from `bucket` * DELTA is gone over until nothing in it changes. */
static void shortest_paths(int root) {
    int *distance = malloc((size_t)n * sizeof *distance), *expected = malloc((size_t)n * sizeof *expected);
    for (int v = 0; v < n; v++)
        distance[v] = FAR;
    distance[root] = 0;
    for (int bucket = 0, nearest = 0; nearest < FAR; bucket = nearest / DELTA) {
        int end = (bucket + 1) * DELTA;
        for (int changed = 1; changed;) {
            changed = 0;
#pragma omp parallel for reduction(| : changed) schedule(guided)
            for (int v = 0; v < n; v++) {
                int own = of(distance, v);
                if (own < bucket * DELTA || own >= end)
                    continue;
                for (int k = start[v]; k < start[v + 1]; k++)
                    if (lower(&distance[neighbour[k]], own + weight[k]))
                        changed = 1;
            }
        }
        nearest = FAR;
#pragma omp parallel for reduction(min : nearest)
        for (int v = 0; v < n; v++)
            if (distance[v] >= end && distance[v] < nearest)
                nearest = distance[v];
    }
    serial_distances(root, 0, expected);
    for (int v = 0; v < n; v++)
        CHECK(distance[v] == expected[v]);
    free(expected);
    free(distance);
}

int main(int argc, char **argv) {
    n = (int)size_of(argc, argv, 4000);
    make_graph();
    search(1);
    search(2 % n);
    components(shiloach_vishkin);
    components(afforest);
    shortest_paths(3 % n);
    free(weight);
    free(neighbour);
    free(start);
    return result();
}
