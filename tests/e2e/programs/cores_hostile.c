/* Programs that try to leave their segment: NAME WAY LIMIT. Any that comes back prints "escaped". */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int deep(volatile char *above) {
    volatile char room[4096];
    room[0] = *above;
    return deep(room) + room[1];
}

int main(int argc, char **argv) {
    uintptr_t limit = strtoull(argv[2], NULL, 0);
    const char *way = argv[1];
    volatile char *beyond = (volatile char *)limit;
    if (!strcmp(way, "read")) printf("%d\n", *beyond);
    if (!strcmp(way, "write")) *beyond = 1;
    if (!strcmp(way, "straddle")) *(volatile long long *)(limit - 4) = 1;
    if (!strcmp(way, "far")) *(volatile char *)(uintptr_t)0xfffffff0U = 1;
    if (!strcmp(way, "string")) memset((char *)limit - 64, 0, 4096);
    if (!strcmp(way, "stack")) deep("");
    if (!strcmp(way, "jump")) ((void (*)(void))limit)();
    if (!strcmp(way, "null")) *(volatile char *)(uintptr_t)argc = 1;
#ifdef __i386__
    if (!strcmp(way, "push")) __asm__ volatile("mov %0, %%esp; push %%eax" ::"r"(limit + 64));
    if (!strcmp(way, "es")) __asm__ volatile("movb $1, %%es:(%0)" ::"r"(limit));
    if (!strcmp(way, "ss")) __asm__ volatile("movb $1, %%ss:(%0)" ::"r"(limit));
    if (!strcmp(way, "gs")) __asm__ volatile("movb $1, %%gs:(%0)" ::"r"((uintptr_t)0xa0000000));
    /* Linux's flat data segment: what it reaches is nothing. */
    if (!strcmp(way, "flat"))
        __asm__ volatile("mov $0x2b, %%eax; mov %%eax, %%ds; movb $1, (%0)" ::"r"(limit + 4096) : "eax");
    /* Linux's 64-bit code segment: to a system call that only we may make. */
    if (!strcmp(way, "long"))
        __asm__ volatile("ljmp $0x33, $1f; 1: .byte 0xb8, 39, 0, 0, 0, 0x0f, 0x05; hlt");
    /* The same, to what the process around has at its thread pointer. */
    if (!strcmp(way, "host"))
        __asm__ volatile("ljmp $0x33, $1f; 1: .byte 0x64, 0x48, 0x8b, 0x04, 0x25, 0, 0, 0, 0;" /* mov rax, fs:[0] */
                         ".byte 0xc6, 0x00, 0x01;"                                              /* mov byte [rax], 1 */
                         ".byte 0xb8, 60, 0, 0, 0, 0x0f, 0x05; hlt");                           /* exit */
    if (!strcmp(way, "fs")) {
        /* The 64-bit side's thread pointer is lost, and must be found again. */
        __asm__ volatile("mov $0x2b, %%eax; mov %%eax, %%fs; xor %%eax, %%eax; mov %%eax, %%fs" ::: "eax");
        puts("still here");
        fflush(stdout);
        *beyond = 1;
    }
    if (!strcmp(way, "flags")) {
        /* Direction and alignment flags set across a call. */
        __asm__ volatile("pushf; orl $0x40400, (%%esp); popf; call *%%gs:0x10; pushf; andl $~0x40400, (%%esp); popf" ::"a"(20) : "memory");
        puts("still here");
        fflush(stdout);
        *beyond = 1;
    }
#endif
    puts("escaped");
    return 0;
}
