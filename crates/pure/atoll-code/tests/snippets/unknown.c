/* Functions whose behaviour cannot be determined: all must be found unknown at every level. */
#include <unistd.h>

typedef double (*step)(double);
struct steps {
    step first, second;
};
step current;
struct solver {
    double residual, *cells;
    int *touched;
};

double unknown_pointer(step f, double x) { return 1 + f(x); }
double unknown_tail_pointer(step f, double x) { return f(x); }
double unknown_global_pointer(double x) { return 1 + current(x); }
double unknown_member(const struct steps *s, double x) { return s->second(x) * 2; }

long unknown_system_call(void) {
#ifdef __aarch64__
    register long number __asm__("x8") = 172;
    register long result __asm__("x0");
    __asm__ volatile("svc 0" : "=r"(result) : "r"(number) : "memory");
#else
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(39) : "rcx", "r11", "memory");
#endif
    return result;
}

/* Ends when the residual changes; whether the loop's own stores change it cannot be determined. */
void unknown_wait(struct solver *s) {
    int i = 0;
    while (s->residual > 0.5) {
        s->cells[i++ & 15] = 0;
    }
}

int unknown_jump(void **places, int i) {
    if (!places) {
        static void *mine[2];
        mine[0] = &&one;
        mine[1] = &&two;
        places = mine;
    }
    goto *places[i];
one:
    return 1;
two:
    return i;
}

int main(void) { return 0; }
