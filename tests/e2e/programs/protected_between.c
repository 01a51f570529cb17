// Memory that the program has protected, as compilers protect the code that they have made, lies between memory that comes and goes under
// a near limit. It must hold what was written, be read and written by system calls, and be new memory once it was freed.
// Without OpenMP: two threads sweep over the rest meanwhile.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { BLOCKS = 96, BLOCK = 384 << 10, PAGE = 4096, WORDS = PAGE / 8, PAGES = BLOCK / PAGE, ROUNDS = 6 };

static uint64_t *block[BLOCKS];
static uint64_t written[BLOCKS];

// The protected pages of a block: some stretches are long, some a single page.
static int first_of(int i) { return 5 + i * 7 % 60; }
static int count_of(int i) { return i % 3 == 0 ? 1 : 1 + i % 29; }

static uint64_t value(int i, int page, uint64_t round) { return (uint64_t)i << 40 | (uint64_t)page << 20 | round; }

static int is_protected(int i, int page) { return page >= first_of(i) && page < first_of(i) + count_of(i); }

static void wrong(const char *what, int i, int page, uint64_t found) {
  printf("%s: block %d, page %d holds %#lx\n", what, i, page, (unsigned long)found);
  exit(1);
}

static void *sweep(void *begin) {
  for (uint64_t round = 1; round <= ROUNDS; round++)
    for (int i = (int)(intptr_t)begin; i < BLOCKS; i += 2) {
      for (int page = 0; page < PAGES; page++) {
        uint64_t *words = block[i] + page * WORDS;
        uint64_t expected = value(i, page, is_protected(i, page) ? 0 : round - 1);
        if (words[0] != expected || words[WORDS - 1] != expected) wrong("sweep", i, page, words[0]);
        if (!is_protected(i, page)) words[0] = words[WORDS - 1] = value(i, page, round);
      }
      written[i] = round;
    }
  return NULL;
}

static void protect(int i, int prot) {
  if (mprotect(block[i] + first_of(i) * WORDS, (size_t)count_of(i) * PAGE, prot) != 0) {
    perror("mprotect");
    exit(1);
  }
}

int main(void) {
  for (int i = 0; i < BLOCKS; i++) {
    if (posix_memalign((void **)&block[i], PAGE, BLOCK) != 0) return 1;
    for (int page = 0; page < PAGES; page++) {
      uint64_t *words = block[i] + page * WORDS;
      words[0] = words[WORDS - 1] = value(i, page, 0);
    }
    // Others are protected later, when parts of them have left near memory.
    if (i % 2 == 0) protect(i, i % 4 == 0 ? PROT_READ | PROT_EXEC : PROT_READ);
  }
  for (int i = 1; i < BLOCKS; i += 2) protect(i, PROT_READ);
  pthread_t threads[2];
  for (intptr_t t = 0; t < 2; t++) pthread_create(&threads[t], NULL, sweep, (void *)t);
  for (int t = 0; t < 2; t++) pthread_join(threads[t], NULL);
  // A call of the kernel that writes a block with what is protected in it, and one that reads one.
  FILE *file = tmpfile();
  uint64_t sum = 0;
  for (int i = 0; i < BLOCKS; i++) {
    sum += written[i];
    if (pwrite(fileno(file), block[i], BLOCK, 0) != BLOCK) return 1;
    protect(i, PROT_READ | PROT_WRITE);
    memset(block[i], 0, BLOCK);
    if (pread(fileno(file), block[i], BLOCK, 0) != BLOCK) return 1;
    for (int page = 0; page < PAGES; page++) {
      uint64_t expected = value(i, page, is_protected(i, page) ? 0 : ROUNDS);
      if (block[i][page * WORDS + WORDS - 1] != expected) wrong("read", i, page, block[i][page * WORDS]);
    }
  }
  for (int i = 0; i < BLOCKS; i++) free(block[i]);
  for (int i = 0; i < BLOCKS; i++) {
    uint64_t *new = calloc(1, BLOCK);
    for (int word = 0; word < BLOCK / 8; word += WORDS / 4) {
      if (new[word] != 0) wrong("calloc", i, word / WORDS, new[word]);
      new[word] = 1;
    }
    sum += new[i] + (uint64_t)(new != NULL);
  }
  printf("%lu\n", (unsigned long)sum);
  return 0;
}
