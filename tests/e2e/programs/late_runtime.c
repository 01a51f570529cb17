/* A program without OpenMP that loads a library of OpenMP (ARGV[1]) when it has arrays already, and calls it in its first thread, in a
 * thread of its own, and in a process that it forks before the library was used. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N = 4 << 20 };

static double (*sum)(double *, long);
static double *numbers;

static void *in_thread(void *unused) {
    double *own = malloc(N / 2 * sizeof *own);
    for (long i = 0; i < N / 2; i++) own[i] = i;
    printf("in a thread %.0f\n", sum(own, N / 2));
    free(own);
    return unused;
}

int main(int argc, char **argv) {
    numbers = malloc(N * sizeof *numbers);
    for (long i = 0; i < N; i++) numbers[i] = i % 9;
    sum = (double (*)(double *, long))dlsym(dlopen(argv[1], RTLD_NOW | RTLD_LOCAL), "sum");
    pid_t pid = fork();
    if (pid == 0) {
        double in_child = sum(numbers, N);
        printf("in a child %.0f\n", in_child);
        fflush(stdout);
        _exit(0);
    }
    int status;
    waitpid(pid, &status, 0);
    double *few = calloc(100, sizeof *few);
    printf("%d, few %.0f\n", status, sum(few, 100));
    for (int round = 0; round < 3; round++) printf("%.0f\n", sum(numbers, N));
    pthread_t thread;
    pthread_create(&thread, 0, in_thread, 0);
    pthread_join(thread, 0);
    printf("%.0f\n", sum(numbers, N));
    return 0;
}
