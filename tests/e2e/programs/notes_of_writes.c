// Asks the kernel to note which pages are written from here on (soft-dirty bits), as collectors do.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(void) {
  char name[64];
  snprintf(name, sizeof name, "/proc/%d/clear_refs", getpid());
  int early = open(name, O_WRONLY), early_errno = early < 0 ? errno : 0;
  char *big = malloc(48 << 20);
  memset(big, 1, 48 << 20);
  int late = open(name, O_WRONLY | O_CLOEXEC), late_errno = late < 0 ? errno : 0;
  printf("%d %d, byte %d\n", early_errno == EACCES, late_errno == EACCES, big[1234567]);
  return 0;
}
