// Has a copy of libc's `environ` among its own variables, which it reads in all workers.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern char **environ;

int main(void) {
    long sum = 0, listed = 0;
    for (char **variable = environ; *variable != NULL; variable++) listed += strncmp(*variable, "PATH=", 5) == 0;
#pragma omp parallel for reduction(+ : sum) schedule(static, 1)
    for (int i = 0; i < 64; i++) {
        double *block = malloc(800000);
        for (int k = 0; k < 100000; k++) block[k] = k;
        sum += (environ != NULL) + (long)block[i];
        free(block);
    }
    printf("%ld %ld %d\n", sum, listed, getenv("PATH") != NULL);
    return 0;
}
