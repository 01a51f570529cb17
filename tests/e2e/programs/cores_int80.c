/* A program without a library, which says `int $0x80` itself: caught, and served as any. */
static long call(long n, long a, long b, long c) {
    long r;
    __asm__ volatile("int $0x80" : "=a"(r) : "a"(n), "b"(a), "c"(b), "d"(c) : "memory");
    return r;
}

void _start(void) {
    static const char text[] = "from int 0x80\n";
    long wrote = call(4, 1, (long)text, sizeof text - 1);
    long fault = call(4, 1, 0xfffffff0, 100);
    call(1, wrote == sizeof text - 1 && fault == -14 ? 3 : 1, 0, 0);
    for (;;) __asm__ volatile("ud2");
}
