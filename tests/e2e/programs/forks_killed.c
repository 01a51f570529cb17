/* A child kills its parent before its memory is complete, and then looks at all of it: it must not find zeros. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int count, char **words) {
    size_t n = 8 << 20;
    long *a = malloc(n * sizeof *a);
#pragma omp parallel for
    for (size_t i = 0; i < n; i++) a[i] = (long)i * 3 + 1;
    if (count > 1 && fork() == 0) {
        kill(getppid(), SIGKILL);
        size_t wrong = 0;
        for (size_t i = 0; i < n; i++) wrong += a[i] != (long)i * 3 + 1;
        FILE *to = fopen(words[1], "w");
        fprintf(to, "%zu wrong\n", wrong);
        fclose(to);
        _exit(0);
    }
    sleep(5);
    return 0;
}
