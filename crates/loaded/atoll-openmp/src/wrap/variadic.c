/* libc functions with variable arguments, and those through which a C++ exception may pass.
 *
 * Rust can define neither. The names are exported from stdio.rs, which jumps here. As long as the program is not
 * managed, libc's own functions answer. Output is formatted into pinned memory first, because libc would hand
 * the kernel a long string argument where it lies, which may be in paged memory. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <wchar.h>

extern int atoll_managed(void);
extern int atoll_travels(int);
extern FILE *atoll_begin_input(FILE *);
extern void atoll_end_input(FILE *, FILE *);
extern void atoll_once_wait(_Atomic int *, int);
extern void atoll_once_wake(_Atomic int *);
extern int __vsnprintf_chk(char *, size_t, int, size_t, const char *, va_list);

#define REAL(name, result, ...)                                                                              \
    ({                                                                                                       \
        static _Atomic(void *) cache;                                                                        \
        void *at = atomic_load_explicit(&cache, memory_order_relaxed);                                       \
        if (!at) {                                                                                           \
            at = dlsym(RTLD_NEXT, name);                                                                     \
            atomic_store_explicit(&cache, at, memory_order_relaxed);                                         \
        }                                                                                                    \
        (result(*)(__VA_ARGS__)) at;                                                                         \
    })

enum { ON_STACK = 1024 };

static int format(char *to, size_t size, int flag, const char *text, va_list ap)
{
    va_list copy;
    va_copy(copy, ap);
    int n = flag > 0 ? __vsnprintf_chk(to, size, flag, size, text, copy) : vsnprintf(to, size, text, copy);
    va_end(copy);
    return n;
}

/* The formatted text, in `small` or, if it is longer, in memory that the caller frees. */
static char *formatted(char *small, int *len, int flag, const char *text, va_list ap)
{
    int before = errno;
    *len = format(small, ON_STACK, flag, text, ap);
    if (*len < ON_STACK)
        return small;
    char *large = malloc((size_t)*len + 1);
    if (!large) {
        errno = ENOMEM;
        *len = -1;
        return small;
    }
    errno = before;
    *len = format(large, (size_t)*len + 1, flag, text, ap);
    return large;
}

static int put(FILE *file, int flag, const char *text, va_list ap)
{
    char small[ON_STACK];
    int len;
    char *at = formatted(small, &len, flag, text, ap);
    if (len > 0 && fwrite(at, 1, (size_t)len, file) != (size_t)len)
        len = -1;
    if (at != small)
        free(at);
    return len;
}

static int put_fd(int fd, int flag, const char *text, va_list ap)
{
    char small[ON_STACK];
    int len;
    char *at = formatted(small, &len, flag, text, ap);
    for (int done = 0; done < len;) {
        ssize_t n = write(fd, at + done, (size_t)(len - done));
        if (n < 0) {
            len = -1;
            break;
        }
        done += (int)n;
    }
    if (at != small)
        free(at);
    return len;
}

int atoll_vfprintf_chk(FILE *file, int flag, const char *text, va_list ap)
{
    if (!atoll_managed())
        return REAL("__vfprintf_chk", int, FILE *, int, const char *, va_list)(file, flag, text, ap);
    return put(file, flag, text, ap);
}

int atoll_vfprintf(FILE *file, const char *text, va_list ap)
{
    if (!atoll_managed())
        return REAL("vfprintf", int, FILE *, const char *, va_list)(file, text, ap);
    return put(file, 0, text, ap);
}

int atoll_vdprintf_chk(int fd, int flag, const char *text, va_list ap)
{
    if (!atoll_managed())
        return REAL("__vdprintf_chk", int, int, int, const char *, va_list)(fd, flag, text, ap);
    return put_fd(fd, flag, text, ap);
}

int atoll_vdprintf(int fd, const char *text, va_list ap)
{
    if (!atoll_managed())
        return REAL("vdprintf", int, int, const char *, va_list)(fd, text, ap);
    return put_fd(fd, 0, text, ap);
}

int atoll_vprintf(const char *text, va_list ap) { return atoll_vfprintf(stdout, text, ap); }
int atoll_vprintf_chk(int flag, const char *text, va_list ap) { return atoll_vfprintf_chk(stdout, flag, text, ap); }

#define WITH_LIST(type, last, call)                                                                          \
    va_list ap;                                                                                              \
    va_start(ap, last);                                                                                      \
    type result = call;                                                                                      \
    va_end(ap);                                                                                              \
    return result

int atoll_printf(const char *text, ...) { WITH_LIST(int, text, atoll_vfprintf(stdout, text, ap)); }
int atoll_fprintf(FILE *file, const char *text, ...) { WITH_LIST(int, text, atoll_vfprintf(file, text, ap)); }
int atoll_dprintf(int fd, const char *text, ...) { WITH_LIST(int, text, atoll_vdprintf(fd, text, ap)); }
int atoll_printf_chk(int flag, const char *text, ...)
{
    WITH_LIST(int, text, atoll_vfprintf_chk(stdout, flag, text, ap));
}
int atoll_fprintf_chk(FILE *file, int flag, const char *text, ...)
{
    WITH_LIST(int, text, atoll_vfprintf_chk(file, flag, text, ap));
}
int atoll_dprintf_chk(int fd, int flag, const char *text, ...)
{
    WITH_LIST(int, text, atoll_vdprintf_chk(fd, flag, text, ap));
}

/* Input, and wide output, go through the stream's own pinned buffer: only the lock is ours. If another node has the stream, a
 * stream of this node's reads from there. */
#define INPUT(name, real, char_type)                                                                        \
    int atoll_v##name(FILE *file, const char_type *text, va_list ap)                                         \
    {                                                                                                        \
        FILE *from = atoll_begin_input(file);                                                                \
        int n = REAL(real, int, FILE *, const char_type *, va_list)(from, text, ap);                         \
        atoll_end_input(file, from);                                                                         \
        return n;                                                                                            \
    }                                                                                                        \
    int atoll_##name(FILE *file, const char_type *text, ...)                                                 \
    {                                                                                                        \
        WITH_LIST(int, text, atoll_v##name(file, text, ap));                                                 \
    }

INPUT(fscanf, "vfscanf", char)
INPUT(fwprintf, "vfwprintf", wchar_t)

int atoll_isoc99_vfscanf(FILE *file, const char *text, va_list ap)
{
    FILE *from = atoll_begin_input(file);
    int n = REAL("__isoc99_vfscanf", int, FILE *, const char *, va_list)(from, text, ap);
    atoll_end_input(file, from);
    return n;
}

int atoll_vscanf(const char *text, va_list ap) { return atoll_vfscanf(stdin, text, ap); }
int atoll_scanf(const char *text, ...) { WITH_LIST(int, text, atoll_vfscanf(stdin, text, ap)); }
int atoll_isoc99_vscanf(const char *text, va_list ap) { return atoll_isoc99_vfscanf(stdin, text, ap); }
int atoll_isoc99_scanf(const char *text, ...) { WITH_LIST(int, text, atoll_isoc99_vfscanf(stdin, text, ap)); }
int atoll_isoc99_fscanf(FILE *file, const char *text, ...)
{
    WITH_LIST(int, text, atoll_isoc99_vfscanf(file, text, ap));
}
int atoll_vwprintf(const wchar_t *text, va_list ap) { return atoll_vfwprintf(stdout, text, ap); }
int atoll_wprintf(const wchar_t *text, ...) { WITH_LIST(int, text, atoll_vfwprintf(stdout, text, ap)); }

/* Functions whose allocations become the program's: libc's own, called with that setting. */
#define ALONE(type, call)                                                                                    \
    int before = atoll_travels(1);                                                                           \
    type result = call;                                                                                      \
    atoll_travels(before);                                                                                   \
    return result

static int as_vasprintf(char **to, const char *text, va_list ap)
{
    ALONE(int, REAL("vasprintf", int, char **, const char *, va_list)(to, text, ap));
}
static int as_vasprintf_chk(char **to, int flag, const char *text, va_list ap)
{
    ALONE(int, REAL("__vasprintf_chk", int, char **, int, const char *, va_list)(to, flag, text, ap));
}
static int as_vsscanf(const char *from, const char *text, va_list ap)
{
    ALONE(int, REAL("vsscanf", int, const char *, const char *, va_list)(from, text, ap));
}
static int as_isoc99_vsscanf(const char *from, const char *text, va_list ap)
{
    ALONE(int, REAL("__isoc99_vsscanf", int, const char *, const char *, va_list)(from, text, ap));
}
int atoll_asprintf(char **to, const char *text, ...) { WITH_LIST(int, text, as_vasprintf(to, text, ap)); }
int atoll_asprintf_too(char **to, const char *text, ...) { WITH_LIST(int, text, as_vasprintf(to, text, ap)); }
int atoll_asprintf_chk(char **to, int flag, const char *text, ...)
{
    WITH_LIST(int, text, as_vasprintf_chk(to, flag, text, ap));
}
int atoll_sscanf(const char *from, const char *text, ...) { WITH_LIST(int, text, as_vsscanf(from, text, ap)); }
int atoll_isoc99_sscanf(const char *from, const char *text, ...)
{
    WITH_LIST(int, text, as_isoc99_vsscanf(from, text, ap));
}

/* exec with a list of arguments: collects them, then calls our form with a vector. */
static char **collect(const char *first, va_list ap, char ***environment)
{
    va_list copy;
    va_copy(copy, ap);
    size_t n = 1;
    for (const char *s = first; s; s = va_arg(copy, const char *))
        n++;
    va_end(copy);
    char **list = malloc(n * sizeof(char *));
    if (!list)
        return NULL;
    n = 0;
    for (const char *s = first; s; s = va_arg(ap, const char *))
        list[n++] = (char *)s;
    list[n] = NULL;
    if (environment)
        *environment = va_arg(ap, char **);
    return list;
}

#define EXEC(last, environment, call)                                                                        \
    va_list ap;                                                                                              \
    va_start(ap, last);                                                                                      \
    char **list = collect(last, ap, environment);                                                            \
    va_end(ap);                                                                                              \
    if (!list) {                                                                                             \
        errno = ENOMEM;                                                                                      \
        return -1;                                                                                           \
    }                                                                                                        \
    int result = call;                                                                                       \
    free(list);                                                                         \
    return result

int atoll_execl(const char *path, const char *arg, ...) { EXEC(arg, NULL, execv(path, list)); }
int atoll_execlp(const char *path, const char *arg, ...) { EXEC(arg, NULL, execvp(path, list)); }
int atoll_execle(const char *path, const char *arg, ...)
{
    char **environment;
    EXEC(arg, &environment, execve(path, list, environment));
}

/* pthread_once across workers: the bits are glibc's (1: runs, 2: done), the futex is shared. An exception that leaves the
 * routine makes the next caller try again. */
static void once_failed(_Atomic int **word)
{
    if (*word) {
        atomic_store_explicit(*word, 0, memory_order_release);
        atoll_once_wake(*word);
    }
}

int atoll_pthread_once(pthread_once_t *control, void (*routine)(void))
{
    if (!atoll_managed())
        return REAL("pthread_once", int, pthread_once_t *, void (*)(void))(control, routine);
    _Atomic int *word = (_Atomic int *)control;
    for (;;) {
        int seen = atomic_load_explicit(word, memory_order_acquire);
        if (seen & 2)
            return 0;
        if (seen & 1) {
            atoll_once_wait(word, seen);
            continue;
        }
        if (!atomic_compare_exchange_strong(word, &seen, 1))
            continue;
        __attribute__((cleanup(once_failed))) _Atomic int *unless_done = word;
        routine();
        unless_done = NULL;
        atomic_store_explicit(word, 2, memory_order_release);
        atoll_once_wake(word);
        return 0;
    }
}

void atoll_call_once(int *flag, void (*routine)(void)) { atoll_pthread_once(flag, routine); }
