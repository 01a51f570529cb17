// Cancels threads that compute on paged memory, at any time (`PTHREAD_CANCEL_ASYNCHRONOUS`), and uses the memory after that.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PART = 8 << 20, PARTS = 8, ROUNDS = 30 };

static void *computes(void *part) {
  uint64_t *words = part;
  pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, 0);
  for (;;)
    for (long i = 0; i < PART / 8; i++) words[i] = words[i] * 7 + i;
}

int main(void) {
  char *memory = malloc((size_t)PART * PARTS);
  memset(memory, 1, (size_t)PART * PARTS);
  int cancelled = 0;
  for (int round = 0; round < ROUNDS; round++) {
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
      pthread_create(&threads[i], 0, computes, memory + (size_t)(i + 2 * (round % 3)) * PART);
    usleep(10000);
    for (int i = 0; i < 2; i++) pthread_cancel(threads[i]);
    for (int i = 0; i < 2; i++) {
      void *result;
      pthread_join(threads[i], &result);
      cancelled += result == PTHREAD_CANCELED;
    }
  }
  long rest = 0;
  for (long i = (long)PART * 6; i < (long)PART * PARTS; i++) rest += memory[i];
  memset(memory, 2, (size_t)PART * PARTS);
  long sum = 0;
  for (long i = 0; i < (long)PART * PARTS; i++) sum += memory[i];
  printf("%d %ld %ld\n", cancelled, rest, sum);
  return 0;
}
