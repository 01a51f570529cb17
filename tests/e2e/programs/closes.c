// Starts a program with all descriptors closed but the first three, as Python's subprocess does, and ends as that ends.
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv) {
  (void)argc;
  pid_t child = vfork();
  if (child == 0) {
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    for (int fd = 3; fd < (int)limit.rlim_cur && fd < 4096; fd++) close(fd);
    execv(argv[1], argv + 1);
    _exit(127);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 99;
}
