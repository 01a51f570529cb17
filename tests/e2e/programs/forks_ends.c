/* What happens at the ends of children and of their parent: buffers, handlers of exit, the exit status. */
#define _GNU_SOURCE
#include "e2e.h"
#include <sys/wait.h>
#include <unistd.h>

static int *values;

static void at_exit(void) { printf("at exit: %d\n", values[3]); }

int main(void) {
    values = malloc(24 << 20);
#pragma omp parallel for
    for (int i = 0; i < 6 << 20; i++) values[i] = i + 1;
    atexit(at_exit);
    FILE *file = tmpfile();
    fprintf(file, "of the parent, ");
    fflush(file);
    printf("begun by the parent, ");
    int status;
    if (fork() == 0) {
        values[3] = 50;
        printf("gone on in a child\n");
        fprintf(file, "of the child");
        exit(0);
    }
    wait(&status);
    printf("gone on in the parent, status %d\n", WEXITSTATUS(status));
    fflush(stdout);
    if (fork() == 0) {
        printf("lost with the child");
        _exit(3);
    }
    wait(&status);
    char text[100] = "";
    rewind(file);
    if (!fgets(text, sizeof text, file)) return 1;
    printf("%s; status %d\n", text, WEXITSTATUS(status));
    FILE *pipe = popen("cat", "w");
    fprintf(pipe, "through a pipe\n");
    fflush(stdout);
    pclose(pipe);
    if (fork() == 0) exit(9);
    wait(&status);
    return 7;
}
