// Moves anonymous memory with `mremap` in all its ways, and gives up content of parts over which files are mapped or which were protected.
// Prints sums, which are the same natively.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MB (1L << 20)
#define DONTUNMAP 4

static char *anonymous(long bytes, int value) {
  char *at = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memset(at, value, bytes);
  return at;
}

static long sum(const char *at, long bytes) {
  long sum = 0;
  for (long i = 0; i < bytes; i++) sum += at[i];
  return sum;
}

static void tell(const char *what, const char *at, const char *wanted, long bytes) {
  if (at == MAP_FAILED) printf("%s: error %d\n", what, errno);
  else printf("%s: %d, %ld\n", what, at == wanted, sum(at, bytes));
}

int main(void) {
  // Has the program managed.
  char *ballast = malloc(48 * MB);
  memset(ballast, 1, 48 * MB);

  char *reserved = mmap(0, 64 * MB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  char *to = reserved + 8 * MB;
  tell("onto a reservation", mremap(anonymous(16 * MB, 5), 16 * MB, 16 * MB, MREMAP_MAYMOVE | MREMAP_FIXED, to), to, 16 * MB);
  to = reserved + 32 * MB;
  tell("larger, onto a reservation", mremap(anonymous(4 * MB, 5), 4 * MB, 6 * MB, MREMAP_MAYMOVE | MREMAP_FIXED, to), to, 6 * MB);
  char *back = anonymous(16 * MB, 4);
  tell("and back", mremap(reserved + 8 * MB, 16 * MB, 16 * MB, MREMAP_MAYMOVE | MREMAP_FIXED, back), back, 16 * MB);
  memset(ballast, 2, 48 * MB);
  printf("%ld %ld\n", sum(back, 16 * MB), sum(ballast, 48 * MB));
  back[5 * MB] = 7;
  printf("%ld\n", sum(back, 16 * MB));

  to = anonymous(16 * MB, 9);
  tell("onto used memory", mremap(anonymous(16 * MB, 6), 16 * MB, 16 * MB, MREMAP_MAYMOVE | MREMAP_FIXED, to), to, 16 * MB);

  char *left = anonymous(16 * MB, 7);
  char *moved = mremap(left, 16 * MB, 16 * MB, MREMAP_MAYMOVE | DONTUNMAP, 0);
  printf("left behind: %d, %ld %ld\n", moved != left, sum(moved, 16 * MB), sum(left, 16 * MB));
  left[3] = 1;
  moved = mremap(left, 16 * MB, 16 * MB, MREMAP_MAYMOVE | MREMAP_FIXED | DONTUNMAP, to);
  printf("left behind, onto used memory: %d, %ld %ld\n", moved == to, sum(moved, 16 * MB), sum(left, 16 * MB));

  int file = open("moved.bin", O_RDWR | O_CREAT | O_TRUNC, 0600);
  for (int i = 0; i < 4; i++) write(file, ballast, MB);
  char *base = anonymous(16 * MB, 3);
  char *over = mmap(base + 4 * MB, 3 * MB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, file, MB);
  printf("a file over memory: %d, %ld\n", over == base + 4 * MB, sum(base, 16 * MB));
  memset(over, 5, MB);
  printf("written: %ld, ", sum(base, 16 * MB));
  madvise(base, 16 * MB, MADV_DONTNEED);
  printf("given up: %ld\n", sum(base, 16 * MB));
  lseek(file, 0, SEEK_SET);
  read(file, ballast, 4 * MB);
  printf("the file: %ld\n", sum(ballast, 4 * MB));

  base = anonymous(16 * MB, 3);
  mprotect(base + 4 * MB, 4 * MB, PROT_READ);
  mprotect(base + 4 * MB, 4 * MB, PROT_READ | PROT_WRITE);
  memset(base + 2 * MB, 2, 4 * MB);
  printf("protected before: %ld, ", sum(base, 16 * MB));
  madvise(base, 16 * MB, MADV_DONTNEED);
  printf("given up: %ld\n", sum(base, 16 * MB));
  memset(base, 2, 16 * MB);
  moved = mremap(base, 16 * MB, 24 * MB, MREMAP_MAYMOVE);
  printf("protected before, and moved: %ld\n", sum(moved, 24 * MB));

  errno = 0;
  printf("%d", madvise(ballast + 1, 4096, MADV_DONTNEED)), printf(" %d, ", errno), errno = 0;
  printf("%d", madvise(left, 4096, 12345)), printf(" %d, ", errno), errno = 0;
  printf("%d", munmap(left + 1, 4096)), printf(" %d, ", errno), errno = 0;
  printf("%d", munmap(left, 0)), printf(" %d, ", errno), errno = 0;
  printf("%d", mprotect(left + 1, 4096, PROT_READ)), printf(" %d, ", errno), errno = 0;
  printf("%d", mremap(left + 1, 4096, 8192, MREMAP_MAYMOVE) == MAP_FAILED), printf(" %d, ", errno), errno = 0;
  printf("%d", mremap(left, 0, 4096, MREMAP_MAYMOVE) == MAP_FAILED), printf(" %d, ", errno), errno = 0;
  printf("%d", mremap(left, 4096, 0, MREMAP_MAYMOVE) == MAP_FAILED), printf(" %d, ", errno), errno = 0;
  printf("%d", mremap(left, 8192, 4096, 1024) == MAP_FAILED), printf(" %d, ", errno), errno = 0;
  printf("%d", mremap(left, 8192, 4096, MREMAP_FIXED, to) == MAP_FAILED), printf(" %d, ", errno), errno = 0;
  printf("%d", mremap(left, 8192, 4096, MREMAP_MAYMOVE | DONTUNMAP) == MAP_FAILED), printf(" %d\n", errno);
  unlink("moved.bin");
  return 0;
}
