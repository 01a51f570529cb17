// Threads that are cancelled soon after they are made, and at calls only: each begins, and none ends within malloc, memset or free.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MEMORY = 100 << 20, BLOCK = 100000, ROUNDS = 60, THREADS = 8 };

static int begun, pushed, cleaned;

static void clean(void *block) {
  __sync_fetch_and_add(&cleaned, 1);
  free(block);
}

static void *works(void *unused) {
  __sync_fetch_and_add(&begun, 1);
  char *block = malloc(BLOCK);
  pthread_cleanup_push(clean, block);
  __sync_fetch_and_add(&pushed, 1);
  for (;;) {
    char *other = malloc(BLOCK * 3);
    memset(other, 1, BLOCK * 3);
    memset(block, 1, BLOCK);
    free(other);
    usleep(50);
  }
  pthread_cleanup_pop(1);
  return unused;
}

int main(void) {
  char *memory = malloc(MEMORY);
  memset(memory, 1, MEMORY);
  for (int round = 0; round < ROUNDS; round++) {
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], 0, works, 0);
    for (long i = 0; i < MEMORY; i += 4096 * 37) memory[i]++;
    for (int i = 0; i < THREADS; i++) pthread_cancel(threads[i]);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], 0);
  }
  printf("begun %d pushed %d cleaned %d\n", begun, pushed, cleaned);
  return 0;
}
