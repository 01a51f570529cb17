/* exit, its handlers, and what was left in buffers; quick_exit and _exit are tried in children. */
#include "check.h"
static void first(void) { puts("registered first"); }
static void second(void) { puts("registered second"); }
static void with_status(int status, void *p) { printf("status %d\n", status); }
__attribute__((destructor)) static void destructor(void) { puts("destructor"); }
int main(void)
{
    atexit(first);
    on_exit(with_status, 0);
    atexit(second);
    FILE *f = fopen("unflushed", "w");
    fputs("flushed by exit", f);
    printf("good\n");
    exit(33);
}
