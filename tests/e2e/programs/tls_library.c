/* A library with a thread-local variable. */
__thread int mine[100];

int *of_library(void) {
    return mine;
}
