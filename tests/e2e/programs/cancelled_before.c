// A thread that was cancelled already allocates most of the program's memory, forks and makes a thread: none of these calls ends it.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MEMORY = 100 << 20 };

static char *memory;
static pid_t child;
static int forked, made, reached;

static void *nothing(void *unused) { return unused; }

static void *works(void *unused) {
  pthread_t thread;
  pthread_cancel(pthread_self());
  memory = malloc(MEMORY);
  memset(memory, 1, MEMORY);
  child = fork();
  if (child == 0) _exit(memory[MEMORY / 2] + 1);
  forked = child > 0;
  made = pthread_create(&thread, 0, nothing, 0) == 0 && pthread_detach(thread) == 0;
  pthread_testcancel();
  reached = 1;
  return unused;
}

int main(void) {
  pthread_t thread;
  void *result;
  int status = 0;
  pthread_create(&thread, 0, works, 0);
  pthread_join(thread, &result);
  if (child > 0) waitpid(child, &status, 0);
  long sum = 0;
  for (long i = 0; memory && i < MEMORY; i++) sum += memory[i];
  printf("%d %d %d %d %ld %d\n", result == PTHREAD_CANCELED, forked, made, reached, sum, WEXITSTATUS(status));
  return 0;
}
