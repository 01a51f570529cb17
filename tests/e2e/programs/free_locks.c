// Locks, semaphores and condition variables that nobody else uses, in a large block of memory: none of their functions may make a system call for the
// signal mask or a futex. The kernel ends the program where one does. With the argument "processes" what needs one where workers are processes is left out.
#define _GNU_SOURCE
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <semaphore.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <threads.h>
#include <unistd.h>

enum { OBJECTS = 1000, APART = 4096 };

// The system call itself: a function around it may set the signal mask once the filter holds.
static long call(long number, long first, long second, long third) {
#if defined __x86_64__
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(first), "S"(second), "d"(third) : "rcx", "r11", "memory");
    return result;
#elif defined __aarch64__
    register long x8 __asm__("x8") = number, x0 __asm__("x0") = first, x1 __asm__("x1") = second, x2 __asm__("x2") = third;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
    return x0;
#endif
}

static void forbid(void) {
    static struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigprocmask, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_futex, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    static struct sock_fprog program = {sizeof rules / sizeof *rules, rules};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || call(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, (long)&program)) {
        puts("no filter");
        exit(77);
    }
}

struct objects {
    pthread_mutex_t plain, recursive;
    mtx_t c11;
    pthread_rwlock_t both;
    pthread_cond_t condition;
    sem_t semaphore;
};

static char *memory;
static int are_processes, wrong;
static _Atomic int is_done;

// Runs in a thread of its own, which the filter alone holds for, and never ends.
static void *use(void *nothing) {
    forbid();
    for (int i = 0; i < OBJECTS; i++) {
        struct objects *o = (struct objects *)(memory + i * APART);
        wrong += pthread_mutex_lock(&o->plain) != 0;
        wrong += pthread_mutex_trylock(&o->plain) != EBUSY;
        wrong += pthread_mutex_unlock(&o->plain) != 0;
        wrong += pthread_mutex_trylock(&o->plain) != 0;
        wrong += pthread_mutex_unlock(&o->plain) != 0;
        wrong += mtx_lock(&o->c11) != thrd_success;
        wrong += mtx_unlock(&o->c11) != thrd_success;
        wrong += pthread_cond_signal(&o->condition) != 0;
        wrong += pthread_cond_broadcast(&o->condition) != 0;
        wrong += sem_wait(&o->semaphore) != 0;
        wrong += sem_post(&o->semaphore) != 0;
        int value = 0;
        sem_getvalue(&o->semaphore, &value);
        wrong += value != 1;
        if (are_processes)
            continue;
        wrong += pthread_mutex_lock(&o->recursive) != 0;
        wrong += pthread_mutex_lock(&o->recursive) != 0;
        wrong += pthread_mutex_unlock(&o->recursive) != 0;
        wrong += pthread_mutex_unlock(&o->recursive) != 0;
        wrong += pthread_rwlock_rdlock(&o->both) != 0;
        wrong += pthread_rwlock_tryrdlock(&o->both) != 0;
        wrong += pthread_rwlock_unlock(&o->both) != 0;
        wrong += pthread_rwlock_unlock(&o->both) != 0;
        wrong += pthread_rwlock_wrlock(&o->both) != 0;
        wrong += pthread_rwlock_unlock(&o->both) != 0;
    }
    is_done = 1;
    for (;;)
        continue;
    return nothing;
}

int main(int n, char **v) {
    are_processes = n > 1 && !strcmp(v[1], "processes");
    memory = malloc(OBJECTS * APART);
    memset(memory, 0, OBJECTS * APART);
    pthread_mutexattr_t recursive;
    pthread_mutexattr_init(&recursive);
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    int ready = 0;
#pragma omp parallel reduction(+ : ready)
    ready++;
    for (int i = 0; i < OBJECTS; i++) {
        struct objects *o = (struct objects *)(memory + i * APART);
        pthread_mutex_init(&o->plain, NULL);
        pthread_mutex_init(&o->recursive, &recursive);
        mtx_init(&o->c11, mtx_plain);
        pthread_rwlock_init(&o->both, NULL);
        pthread_cond_init(&o->condition, NULL);
        sem_init(&o->semaphore, 0, 1);
    }
    pthread_t user;
    if (ready < 1 || pthread_create(&user, NULL, use, NULL))
        return 1;
    while (!is_done)
        usleep(1000);
    printf("%d wrong\n", wrong);
    return wrong != 0;
}
