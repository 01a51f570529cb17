// Threads on stacks that the program brings, which are together larger than near memory.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DATA = 60 << 20, ROUNDS = 4, THREADS = 20, STACK = 512 << 10 };

static long total;

static void *works(void *number) {
  char local[60000];
  memset(local, 1, sizeof local);
  __sync_fetch_and_add(&total, local[(long)number]);
  return 0;
}

int main(void) {
  long *data = malloc(DATA);
  for (long i = 0; i < DATA / 8; i++) data[i] = i;
  for (int round = 0; round < ROUNDS; round++) {
    pthread_t threads[THREADS];
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    char *stacks = aligned_alloc(4096, (size_t)THREADS * STACK);
    for (long i = 0; i < THREADS; i++) {
      pthread_attr_setstack(&attributes, stacks + i * STACK, STACK);
      pthread_create(&threads[i], &attributes, works, (void *)i);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], 0);
    free(stacks);
  }
  for (long i = 0; i < DATA / 8; i++) total += data[i];
  printf("%ld\n", total);
  return 0;
}
