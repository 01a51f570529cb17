/* No OpenMP at all. */
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv) {
    unsigned char *p = malloc(32 << 20);
    unsigned long sum = 0;
    for (long i = 0; i < 32 << 20; i++) p[i] = (unsigned char)(i * 7);
    for (long i = 0; i < 32 << 20; i++) sum = sum * 31 + p[i];
    printf("%lx %d %s\n", sum, argc, argc > 1 ? argv[1] : "");
    return argc > 2 ? atoi(argv[2]) : 0;
}
