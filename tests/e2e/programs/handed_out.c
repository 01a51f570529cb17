// The library of `through_launchers.c`: its block is made by a function that it does not export, behind one that it does.
#include <stdlib.h>

static __attribute__((noinline)) double *inside(size_t n)
{
    double *block = malloc(n * sizeof *block);
    block[0] = 1;
    return block;
}

double *exported(size_t n)
{
    return n ? inside(n) : 0;
}
