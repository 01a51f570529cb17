// Behaves like a program with two workers, without a runtime: ./workers WHAT [NUMBER].
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static char *control;
static int *at(long offset) { return (int *)(control + offset); }

static int real; // real workers ask the kernel to die with their master

static int worker(int index, void (*does)(int), int number) {
    int pid = fork();
    if (pid == 0) {
        alarm(60);
        if (real) prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (does) {
            usleep(120000);
            does(number);
        }
        for (;;) pause();
    }
    *at(FIGURES + index * STEP + PID) = pid;
    return pid;
}

static void by_signal(int number) { raise(number); }
static void by_exit(int number) { _exit(number); }
static void requests(int number) {
    *at(EXIT_STATUS) = number + 1;
    kill(*at(PROGRAM), SIGKILL);
}
static void fails(int number) {
    *at(FAILURE) = number;
    kill(*at(PROGRAM), SIGKILL);
}

int main(int argc, char **argv) {
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    const char *what = argv[1];
    int number = argc > 2 ? atoi(argv[2]) : 0;
    control = mmap(0, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, atoi(getenv("ATOLL_CONTROL_FD")), 0);
    if (control == MAP_FAILED) return 99;
    *at(PROGRAM) = getpid();
    *(long *)(control + FIGURES + MAJOR) = 42;
    *(long *)(control + FOOTPRINT) = 1 << 20;
    *at(FIGURES + PID) = getpid();
    void (*does)(int) = !strcmp(what, "worker-signal")     ? by_signal
                        : !strcmp(what, "worker-exit")     ? by_exit
                        : !strcmp(what, "worker-requests") ? requests
                        : !strcmp(what, "worker-fails")    ? fails
                                                           : 0;
    real = !strcmp(what, "real");
    int first = worker(1, 0, 0);
    int second = worker(2, does, number);
    *at(WORKERS) = 3;
    FILE *pids = fopen("pids.new", "w");
    fprintf(pids, "%d %d %d\n", getpid(), first, second);
    fclose(pids);
    rename("pids.new", "pids");
    if (!strcmp(what, "exit")) return number;
    if (!strcmp(what, "signal")) {
        usleep(120000);
        raise(number);
    }
    if (!strcmp(what, "orderly")) {
        usleep(120000);
        *at(ENDING) = 1;
        kill(first, SIGKILL);
        kill(second, SIGKILL);
        waitpid(first, 0, 0);
        waitpid(second, 0, 0);
        usleep(600000);
        return number;
    }
    if (!strcmp(what, "sleep")) sleep(number);
    alarm(60);
    for (;;) pause();
}
