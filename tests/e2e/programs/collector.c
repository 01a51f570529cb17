// A collector with write barriers (libgc, incremental): trees are built and thrown away, and a forest that stays is changed in place. The collector protects its
// heap, and learns of changes by SIGSEGV. With OpenMP all threads do so, each registered with the collector.
#ifdef _OPENMP
#define GC_THREADS
#include <omp.h>
#endif
#include <gc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
struct node { struct node *left, *right; long key; long pad[5]; };
static struct node *make(int depth, long key) {
  struct node *n = GC_MALLOC(sizeof *n);
  if (!n) { puts("no memory"); exit(3); }
  n->key = key;
  if (depth) { n->left = make(depth - 1, 2 * key); n->right = make(depth - 1, 2 * key + 1); }
  return n;
}
static long sum(struct node *n) { return n ? n->key % 1000 + sum(n->left) + sum(n->right) : 0; }
static void change(struct node *n, int depth, unsigned path, long key) {
  // Replace a subtree deep down by a new one.
  while (depth > 4) { n = path & 1 ? n->left : n->right; path >>= 1; depth--; }
  n->left = make(depth - 1, key);
}
int main(int argc, char **argv) {
  int trees = argc > 1 ? atoi(argv[1]) : 24, rounds = argc > 2 ? atoi(argv[2]) : 6, depth = 16;
  GC_INIT();
  GC_enable_incremental();
#ifdef _OPENMP
  GC_allow_register_threads();
#endif
  struct node **forest = GC_MALLOC(trees * sizeof *forest);
  long total = 0;
#ifdef _OPENMP
#pragma omp parallel reduction(+ : total)
  {
    struct GC_stack_base base;
    int mine = GC_get_stack_base(&base) == GC_SUCCESS && omp_get_thread_num() != 0 && GC_register_my_thread(&base) == GC_SUCCESS;
#pragma omp for schedule(static, 1)
#endif
    for (int t = 0; t < trees; t++) {
      forest[t] = make(depth, t + 1);
      for (int r = 0; r < rounds; r++) {
        for (unsigned i = 0; i < 2000; i++) change(forest[t], depth, i * 2654435761u >> 7, t * 100 + r + i);
        total += sum(forest[t]) % 10007;
        struct node *garbage = make(14, r);
        total += sum(garbage) % 7;
      }
    }
#ifdef _OPENMP
    if (mine) GC_unregister_my_thread();
  }
#endif
  for (int t = 0; t < trees; t++) total += sum(forest[t]);
  printf("total %ld incremental %d\n", total, GC_is_incremental_mode());
  fprintf(stderr, "heap %zu MB, %lu collections\n", GC_get_heap_size() >> 20, (unsigned long)GC_get_gc_no());
  return 0;
}
