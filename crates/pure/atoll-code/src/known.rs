//! Library entry points that are not followed, and the effect of each on a region.
//!
//! Read by `body` for every call that leaves an object. A function whose name is not here is followed into its library.

/// The effect of calling a known function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Effect {
    /// An entry point of the OpenMP runtime, which synchronises by itself.
    OpenMp,
    /// Writes no memory of the program: mathematics, clocks, queries.
    Pure,
    /// Writes only memory that it is given, returns or keeps for itself: copies, allocation, input and output.
    Plain,
    /// Yields the processor, as only code does that waits for another worker.
    Yields,
    /// Synchronises workers through memory of the program.
    Synchronises,
    /// Never returns.
    NoReturn,
}

/// A known function.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Known {
    pub(crate) effect: Effect,
    /// Whether it may write memory of the program.
    pub(crate) writes: bool,
    /// Whether its result depends on memory of the program.
    pub(crate) reads: bool,
    /// The numbers of its arguments, from 0, that are functions which it calls.
    pub(crate) callbacks: &'static [usize],
}

const PURE: &str = "acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp10 exp2 expm1 fabs fdim \
    floor fma fmax fmin fmod hypot ilogb j0 j1 jn ldexp lgamma llrint llround log log10 log1p log2 logb lrint lround \
    nearbyint nextafter nexttoward pow remainder rint round roundeven scalbln scalbn sin sinh sqrt tan tanh tgamma trunc y0 y1 yn \
    cabs carg cexp clog cpow csqrt ccos csin ctan ccosh csinh ctanh conj cimag creal cproj cacos casin catan \
    abs labs llabs isalpha isdigit isspace isupper islower isalnum isxdigit ispunct toupper tolower __ctype_b_loc \
    __ctype_tolower_loc __ctype_toupper_loc __errno_location memcmp bcmp memchr memrchr rawmemchr strlen strnlen strcmp \
    strncmp strcasecmp strncasecmp strchr strrchr strchrnul strstr strspn strcspn strpbrk strcoll wcslen atoi atol atoll atof \
    getenv secure_getenv getpid getppid gettid getuid geteuid getpagesize sysconf sched_getcpu clock time times \
    malloc_usable_size pthread_self pthread_equal usleep sleep nanosleep clock_nanosleep __fpclassify __isnan \
    __isinf __finite __signbit isnan isinf finite __muldc3 __divdc3 __mulsc3 __divsc3 __multi3 __udivti3 __umodti3 __divti3 \
    __modti3 __popcountdi2 __powidf2 __powisf2";

const PLAIN: &str = "malloc calloc realloc reallocarray free cfree memalign aligned_alloc posix_memalign valloc pvalloc strdup strndup \
    _Znwm _Znam _ZnwmSt11align_val_t _ZnamSt11align_val_t _ZnwmRKSt9nothrow_t _ZnamRKSt9nothrow_t _ZdlPv _ZdaPv _ZdlPvm \
    _ZdaPvm _ZdlPvSt11align_val_t _ZdaPvSt11align_val_t _ZdlPvmSt11align_val_t _ZdaPvmSt11align_val_t _ZdlPvRKSt9nothrow_t \
    memcpy memmove mempcpy memset bzero bcopy explicit_bzero memccpy stpcpy stpncpy strcpy strncpy strcat strncat strlcpy strlcat strsep \
    strtok strtok_r strtod strtof strtold strtol strtoll strtoul strtoull strerror strerror_r strxfrm \
    __memcpy_chk __memmove_chk __memset_chk __mempcpy_chk __strcpy_chk __strncpy_chk __strcat_chk __strncat_chk __stpcpy_chk \
    frexp frexpf frexpl modf modff modfl sincos sincosf sincosl remquo remquof lgamma_r lgammaf_r \
    printf fprintf sprintf snprintf dprintf vprintf vfprintf vsprintf vsnprintf vdprintf asprintf vasprintf puts fputs putc fputc \
    putchar putc_unlocked putchar_unlocked perror fwrite fread fflush fopen fopen64 fdopen freopen fclose fgets fgetc getc getchar ungetc \
    getline getdelim scanf fscanf sscanf vscanf vfscanf vsscanf __isoc99_scanf __isoc99_fscanf __isoc99_sscanf __isoc23_scanf \
    __isoc23_fscanf __isoc23_sscanf __isoc23_strtol __isoc23_strtoul __isoc23_strtoll __isoc23_strtoull fseek fseeko fseeko64 ftell \
    ftello ftello64 rewind feof ferror clearerr fileno setvbuf setbuf setlinebuf remove rename tmpfile tmpfile64 \
    __printf_chk __fprintf_chk __sprintf_chk __snprintf_chk __vprintf_chk __vfprintf_chk __vsprintf_chk __vsnprintf_chk __asprintf_chk \
    __fread_chk __fgets_chk open open64 openat creat close read write pread pread64 pwrite pwrite64 readv writev lseek lseek64 stat stat64 fstat \
    fstat64 lstat access unlink mkdir rmdir fsync fdatasync ftruncate ftruncate64 mmap mmap64 munmap mprotect madvise mremap \
    clock_gettime clock_getres gettimeofday localtime localtime_r gmtime gmtime_r mktime strftime asctime ctime difftime \
    rand srand rand_r random srandom drand48 erand48 lrand48 nrand48 mrand48 jrand48 srand48 random_r srandom_r drand48_r erand48_r \
    lrand48_r srand48_r setenv unsetenv putenv getrusage getcwd gethostname uname getopt \
    pthread_getspecific pthread_setspecific pthread_key_create sched_getaffinity sched_setaffinity pthread_getaffinity_np \
    pthread_setaffinity_np __tls_get_addr __cxa_allocate_exception __cxa_free_exception __cxa_begin_catch __cxa_end_catch \
    __cxa_get_exception_ptr __cxa_atexit __cxa_thread_atexit __cxa_thread_atexit_impl __gxx_personality_v0 __gmon_start__ \
    __sigsetjmp _setjmp setjmp sigsetjmp feclearexcept feraiseexcept fetestexcept fesetround fegetround fegetenv fesetenv feholdexcept feupdateenv";

const NO_RETURN: &str = "abort exit _exit _Exit quick_exit __assert_fail __assert_perror_fail __assert __stack_chk_fail __chk_fail \
    __fortify_fail longjmp _longjmp siglongjmp __longjmp_chk pthread_exit _Unwind_Resume _Unwind_Resume_or_Rethrow __cxa_throw __cxa_rethrow \
    __cxa_bad_cast __cxa_bad_typeid __cxa_throw_bad_array_new_length __cxa_call_unexpected __cxa_call_terminate __cxa_pure_virtual \
    __cxa_deleted_virtual _ZSt9terminatev \
    err errx verr verrx __libc_start_main _gfortran_stop_string _gfortran_stop_numeric _gfortran_error_stop_string \
    _gfortran_error_stop_numeric _gfortran_runtime_error _gfortran_runtime_error_at _gfortran_os_error _gfortran_os_error_at";

const YIELDS: &str = "sched_yield pthread_yield thrd_yield";

const SYNCHRONISES: &str = "__cxa_guard_acquire __cxa_guard_release __cxa_guard_abort pthread_once call_once syscall membarrier \
    pthread_mutex_lock pthread_mutex_trylock pthread_mutex_timedlock pthread_mutex_clocklock pthread_mutex_unlock \
    pthread_spin_lock pthread_spin_trylock pthread_spin_unlock pthread_rwlock_rdlock pthread_rwlock_wrlock pthread_rwlock_tryrdlock \
    pthread_rwlock_trywrlock pthread_rwlock_unlock pthread_cond_wait pthread_cond_timedwait pthread_cond_signal pthread_cond_broadcast \
    pthread_barrier_wait pthread_create pthread_join sem_wait sem_trywait sem_timedwait sem_post mtx_lock mtx_trylock mtx_unlock \
    cnd_wait cnd_signal cnd_broadcast thrd_create thrd_join fork vfork";

fn among(list: &str, name: &str) -> bool {
    list.split_ascii_whitespace().any(|entry| entry == name)
}

/// Whether it is a mathematical function of another precision (`sinf`, `sinl`) or one of glibc's aliases (`__sin_finite`).
fn is_mathematics(name: &str) -> bool {
    let plain = name.strip_prefix("__").and_then(|n| n.strip_suffix("_finite")).unwrap_or(name);
    let stem = plain.strip_suffix(['f', 'l', 'q']).unwrap_or(plain);
    // Vector versions have names of the vector function ABI, such as _ZGVdN4v_sin.
    name.starts_with("_ZGV") || among(PURE, plain) || among(PURE, stem)
}

/// Whether it is an entry point of the runtime or of the allocator, which is known whichever library defines it.
pub(crate) fn is_replaceable(name: &str) -> bool {
    ["GOMP_", "omp_", "__kmpc_", "kmp_", "ompc_"].iter().any(|p| name.starts_with(p))
        || among(
            "malloc calloc realloc free memalign aligned_alloc posix_memalign _Znwm _Znam _ZdlPv _ZdaPv _ZdlPvm _ZdaPvm",
            name,
        )
}

/// Whether the entry points of this library are known by name.
pub(crate) fn is_system_library(path: &str) -> bool {
    const PREFIXES: [&str; 20] = [
        "libc.so",
        "libc-",
        "libm.so",
        "libm-",
        "libmvec",
        "libpthread",
        "libdl.so",
        "librt.so",
        "ld-linux",
        "libgcc_s.",
        "libstdc++",
        "libc++",
        "libgfortran",
        "libquadmath",
        "libgomp",
        "libomp",
        "libiomp5",
        "libatomic",
        "libatoll_",
        "linux-vdso",
    ];
    let file = path.rsplit('/').next().unwrap_or(path);
    PREFIXES.iter().any(|prefix| file.starts_with(prefix))
}

/// The known properties of a function.
pub(crate) fn lookup(name: &str) -> Option<Known> {
    let openmp = |callbacks| Some(Known { effect: Effect::OpenMp, writes: true, reads: false, callbacks });
    let calling = |callbacks| Some(Known { effect: Effect::Plain, writes: true, reads: true, callbacks });
    let plain = |effect| {
        let writes = !matches!(effect, Effect::Pure | Effect::Yields | Effect::NoReturn);
        let reads = ["mem", "str", "bcmp", "wcs", "ato"].iter().any(|p| name.starts_with(p));
        Some(Known { effect, writes, reads, callbacks: &[] })
    };
    if name.starts_with("GOMP_parallel") && name != "GOMP_parallel_end" || name == "GOMP_teams_reg" {
        return openmp(&[0]);
    }
    match name {
        "GOMP_task" | "GOMP_taskloop" | "GOMP_taskloop_ull" => return openmp(&[0, 2]),
        "__kmpc_fork_call" | "__kmpc_fork_teams" | "__kmpc_fork_call_if" => return openmp(&[2]),
        "__kmpc_omp_task_alloc" | "__kmpc_omp_target_task_alloc" => return openmp(&[5]),
        "__kmpc_reduce" | "__kmpc_reduce_nowait" => return openmp(&[5]),
        "__kmpc_copyprivate" => return openmp(&[4]),
        "qsort" | "qsort_r" => return calling(&[3]),
        "bsearch" => return calling(&[4]),
        "atexit" => return calling(&[0]),
        _ => {}
    }
    // clang's flush, and its atomics of unusual types, work on the program's memory at the place of the call.
    if name == "__kmpc_flush" || name.starts_with("__kmpc_atomic_") {
        return plain(Effect::Synchronises);
    }
    if name.starts_with("omp_get_") || name.starts_with("omp_in_") {
        return Some(Known { effect: Effect::OpenMp, writes: false, reads: false, callbacks: &[] });
    }
    if name.starts_with("GOMP_")
        || name.starts_with("omp_")
        || name.starts_with("__kmpc_")
        || name.starts_with("kmp_")
    {
        // Code that runs on another device is not followed.
        return if name.starts_with("GOMP_target") { None } else { openmp(&[]) };
    }
    if among(NO_RETURN, name) {
        return plain(Effect::NoReturn);
    }
    if is_mathematics(name) {
        return plain(Effect::Pure);
    }
    if among(PLAIN, name) || name.starts_with("_gfortran_") {
        return plain(Effect::Plain);
    }
    if among(YIELDS, name) {
        return plain(Effect::Yields);
    }
    if among(SYNCHRONISES, name) || name.starts_with("__atomic_") || name.starts_with("__sync_") {
        return plain(Effect::Synchronises);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_the_effects_declared() {
        let effect = |name| lookup(name).map(|k| k.effect);
        assert_eq!(effect("GOMP_barrier"), Some(Effect::OpenMp));
        assert_eq!(effect("sqrtf"), Some(Effect::Pure));
        assert_eq!(effect("__exp_finite"), Some(Effect::Pure));
        assert_eq!(effect("_ZGVdN4v_sin"), Some(Effect::Pure));
        assert_eq!(effect("sincos"), Some(Effect::Plain));
        assert_eq!(effect("abort"), Some(Effect::NoReturn));
        assert_eq!(effect("sched_yield"), Some(Effect::Yields));
        assert_eq!(effect("__atomic_load_16"), Some(Effect::Synchronises));
        assert_eq!(effect("__kmpc_flush"), Some(Effect::Synchronises));
        assert_eq!(effect("solve"), None);
        assert_eq!(effect("GOMP_target_ext"), None);
    }
}
